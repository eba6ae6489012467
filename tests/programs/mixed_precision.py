# SPDX-License-Identifier: Apache-2.0
# What: autocast in fp16 with GradScaler and in bf16, channels_last, gradients clipped.
# needs: torchvision
# quick
import torch
import torchvision

device = "cuda"
GradScaler = getattr(torch.amp, "GradScaler", None) or (lambda device, **options: torch.cuda.amp.GradScaler(**options))  # before 2.3
images, labels = torch.zeros(4, 3, 64, 64), torch.randint(0, 1000, (4,))


def train(dtype, steps, scaler):
    model = torchvision.models.resnet18().to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scales = []
    for _ in range(steps):
        batch = images.to(device, memory_format=torch.channels_last)
        with torch.autocast("cuda", dtype=dtype):
            out = model(batch)
            loss = torch.nn.functional.cross_entropy(out, labels.to(device))
        assert out.dtype == dtype and loss.dtype == torch.float32
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
        assert torch.isfinite(norm) and norm.item() > 0
        assert torch.isfinite(loss) and loss.item() > 0
    assert len(optimizer.state) == len(list(model.parameters())), "no step was skipped"
    assert model.conv1.weight.is_contiguous(memory_format=torch.channels_last)
    assert model.layer1[0].conv1.weight.grad.is_contiguous(memory_format=torch.channels_last)
    return scales


assert train(torch.float16, 3, GradScaler("cuda")) == [65536.0] * 3
assert train(torch.float16, 5, GradScaler("cuda", growth_interval=2)) == [65536.0, 131072.0, 131072.0, 262144.0, 262144.0]
assert train(torch.bfloat16, 2, GradScaler("cuda", enabled=False)) == [1.0] * 2
print("ok")
