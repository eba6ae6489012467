# SPDX-License-Identifier: Apache-2.0
# What: a program that calls its model a thousand times before its optimizer's first step, as reinforcement learning does, is not ended before.
# early end
# expect: that e["stopped_early"] and e["steps"] >= 8
# expect: that e["peak_allocated_bytes"] >= 4 * 64 << 20
import torch

policy = torch.nn.Sequential(torch.nn.Linear(4096, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 2)).cuda()
optimizer = torch.optim.Adam(policy.parameters())
for update in range(100):
    with torch.no_grad():
        actions = [policy(torch.randn(1, 4096, device="cuda")).argmax(-1) for _ in range(1000 if update == 0 else 10)]
    loss = torch.nn.functional.cross_entropy(policy(torch.randn(len(actions), 4096, device="cuda")), torch.cat(actions))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
