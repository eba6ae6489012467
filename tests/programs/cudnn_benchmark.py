# SPDX-License-Identifier: Apache-2.0
# What: torch.backends.cudnn.benchmark: the search for the fastest plan takes its workspaces, then each shape has its plan.
# needs: torchvision
# expect: note "benchmark"
# quick
import torch
import torchvision

device = "cuda"
torch.backends.cudnn.benchmark = True
assert torch.backends.cudnn.enabled and torch.backends.cudnn.is_available()


def train(model, batch, steps=3, dtype=None):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    reserved = []
    for _ in range(steps):
        with torch.autocast("cuda", dtype=dtype, enabled=dtype is not None):
            loss = model(batch).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        reserved.append(torch.cuda.memory_reserved())
    assert reserved[-1] == reserved[-2], reserved
    return torch.cuda.max_memory_allocated()


small = torchvision.models.resnet18().to(device)
searched = train(small, torch.zeros(16, 3, 112, 112, device=device))
torch.cuda.reset_peak_memory_stats()
known = train(small, torch.zeros(16, 3, 112, 112, device=device))
# Each of its blocks may be up to 1 MiB larger than asked for, whatever was free.
assert known <= searched + (4 << 20), "known shapes are not searched again"
train(small, torch.zeros(5, 3, 96, 96, device=device))  # another shape
train(torchvision.models.mobilenet_v2().to(device, memory_format=torch.channels_last),
      torch.zeros(8, 3, 64, 64, device=device).to(memory_format=torch.channels_last), dtype=torch.float16)
train(torch.nn.Sequential(torch.nn.Conv3d(3, 8, 3), torch.nn.ReLU(), torch.nn.ConvTranspose3d(8, 4, 3)).to(device),
      torch.zeros(2, 3, 8, 16, 16, device=device))
print("ok")
