# SPDX-License-Identifier: Apache-2.0
# What: bitsandbytes' 8-bit AdamW, whose own CUDA library brings kernels: two bytes of state a parameter.
# needs: bitsandbytes
import bitsandbytes as bnb
import torch

model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(4)]).cuda()
parameters = sum(p.numel() for p in model.parameters())
optimizer = bnb.optim.AdamW8bit(model.parameters())
x = torch.randn(8, 1024, device="cuda")
for _ in range(3):
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
states = {t.data_ptr(): t.numel() * t.element_size() for state in optimizer.state.values() for t in state.values() if isinstance(t, torch.Tensor)}
assert all(state["state1"].dtype == torch.uint8 for p, state in optimizer.state.items() if p.numel() > 4096)
assert 2 * parameters <= sum(states.values()) <= 2.2 * parameters, (parameters, sum(states.values()))
print("ok")
