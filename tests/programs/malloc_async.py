# SPDX-License-Identifier: Apache-2.0
# What: PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync: a training loop on the driver's memory pools, with their figures.
# env: PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync PYTORCH_ALLOC_CONF=backend:cudaMallocAsync
# expect: that e["peak_allocated_bytes"] <= e["peak_reserved_bytes"]
# expect: that 512 * MiB < e["peak_allocated_bytes"] <= e["peak_reserved_bytes"] < 720 * MiB
import torch

MIB = 1 << 20
assert torch.cuda.get_allocator_backend() == "cudaMallocAsync"
model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(4)]).cuda()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(4):
    optimizer.zero_grad()
    model(torch.rand(256, 1024, device="cuda")).square().mean().backward()
    optimizer.step()
parameters = sum(p.numel() * p.element_size() for p in model.parameters())
assert torch.cuda.memory_allocated() >= 3 * parameters
assert torch.cuda.max_memory_allocated() <= torch.cuda.max_memory_reserved()
assert torch.cuda.memory_reserved() % (2 * MIB) == 0
x = torch.empty(512 * MIB, dtype=torch.uint8, device="cuda")
grown = torch.cuda.memory_reserved()
assert grown >= 512 * MIB
del x
torch.cuda.synchronize()
torch.cuda.empty_cache()
assert torch.cuda.memory_reserved() <= grown - 512 * MIB, torch.cuda.memory_reserved()
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    y = torch.ones(1000, device="cuda")
y.record_stream(torch.cuda.current_stream())
del y
try:
    torch.empty(1 << 44, dtype=torch.uint8, device="cuda")
    raise AssertionError("16 TiB fit")
except torch.cuda.OutOfMemoryError:
    pass
print("ok")
