# SPDX-License-Identifier: Apache-2.0
# What: a program that ends by os._exit, past every exit handler: its peak is known all the same.
# expect: status complete
import os

import torch

net = torch.nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.Adam(net.parameters())
for _ in range(3):
    optimizer.zero_grad()
    net(torch.ones(64, 1024, device="cuda")).square().mean().backward()
    optimizer.step()
assert torch.cuda.max_memory_reserved() > 4 * 1024 * 1024 * 4
os._exit(0)
