# SPDX-License-Identifier: Apache-2.0
# What: torch.cuda.GreenContext: training on a part of the multiprocessors, and on all of them again.
# needs: torch>=2.10
# gpu: NVIDIA H100 80GB HBM3
import torch
from torch.cuda import green_contexts

torch.cuda.init()
net = torch.nn.Linear(512, 512).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)


def step():
    optimizer.zero_grad()
    net(torch.ones(64, 512, device="cuda")).square().mean().backward()
    optimizer.step()


step()
# Builds with CUDA before 12.8 have none; later PyTorch asks the driver through cuda.bindings.
if getattr(green_contexts, "SUPPORTED", getattr(green_contexts, "_HAS_CUDA_BINDINGS", False)):
    part = green_contexts.GreenContext.create(num_sms=16, device_id=0)
    part.set_context()
    step()
    part.pop_context()
    stream = part.Stream() if hasattr(part, "Stream") else torch.cuda.current_stream()
    with torch.cuda.stream(stream):
        step()
    try:
        green_contexts.GreenContext.create(num_sms=10000, device_id=0)
    except RuntimeError:
        pass
    else:
        raise AssertionError("more multiprocessors than the GPU has")
step()
torch.cuda.synchronize()
assert torch.cuda.max_memory_allocated() > 2 * 512 * 512 * 4
print("ok")
