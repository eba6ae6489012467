# SPDX-License-Identifier: Apache-2.0
# What: a program that ends by os._exit right after its peak, past every exit handler: the peak is known all the same (before 2.2 that of the device alone).
# expect: status complete
# expect: that "PyTorch before 2.2" in str(e["notes"]) or (e["peak_reserved_bytes"] >= 96 * MiB and e["peak_allocated_bytes"] >= 96 * MiB)
# expect: that e["need_bytes"] - e["context_bytes"] >= 96 * MiB
# expect: that e["minimum_limit_bytes"] <= e["need_bytes"] - e["context_bytes"]
# expect: that e["steps"] == 3
import os

import torch

net = torch.nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.Adam(net.parameters())
for _ in range(3):
    optimizer.zero_grad()
    net(torch.ones(64, 1024, device="cuda")).square().mean().backward()
    optimizer.step()
assert torch.cuda.max_memory_reserved() > 4 * 1024 * 1024 * 4
last = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
assert torch.cuda.max_memory_reserved() >= 96 << 20
os._exit(0)
