# SPDX-License-Identifier: Apache-2.0
# What: a model split over cuda:0 and cuda:1, copies between them, DataParallel; each device has its own figures.
# gpus: 2
# expect: that len(e["devices"]) == 2 and e["devices"][1]["peak_reserved_bytes"] > 1.5 * e["devices"][0]["peak_reserved_bytes"]
# quick
import torch

assert torch.cuda.device_count() == 2
first = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU()).to("cuda:0")
second = torch.nn.Sequential(torch.nn.Linear(4096, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 10)).to("cuda:1")
optimizer = torch.optim.AdamW([*first.parameters(), *second.parameters()])
for _ in range(3):
    out = second(first(torch.ones(2048, 1024, device="cuda:0")).to("cuda:1"))
    assert out.device.index == 1
    loss = torch.nn.functional.cross_entropy(out, torch.zeros(2048, dtype=torch.long, device="cuda:1"))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    assert loss.item() > 0
assert first[0].weight.grad.device.index == 0 and second[0].weight.grad.device.index == 1
assert optimizer.state[second[0].weight]["exp_avg"].device.index == 1
assert torch.cuda.max_memory_allocated(1) > torch.cuda.max_memory_allocated(0) > 0

torch.cuda.set_device(1)
x = torch.arange(5.0, device="cuda")
assert x.device.index == 1 and x.to("cuda:0").sum().item() == 10 and x.cpu().tolist() == [0, 1, 2, 3, 4]
with torch.cuda.device(0):
    assert torch.empty(1, device="cuda").device.index == 0
assert torch.cuda.can_device_access_peer(0, 1) in (True, False)
try:
    x + torch.ones(5, device="cuda:0")
    raise SystemExit("tensors of two devices were added")
except RuntimeError as error:
    assert "same device" in str(error)

parallel = torch.nn.DataParallel(torch.nn.Linear(64, 8).to("cuda:0"), device_ids=[0, 1])
out = parallel(torch.ones(16, 64, device="cuda:0"))
assert out.shape == (16, 8) and out.device.index == 0
out.sum().backward()
assert parallel.module.weight.grad is not None
torch.cuda.synchronize(0)
print("ok")
