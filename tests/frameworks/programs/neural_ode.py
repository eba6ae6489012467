# SPDX-License-Identifier: Apache-2.0
# What: torchdiffeq's solver of chosen step sizes: unknown errors are those of steps that are accepted, and it ends.
# needs: torchdiffeq
import torch
from torchdiffeq import odeint_adjoint


class Field(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 64))

    def forward(self, t, y):
        return self.net(y)


field = Field().cuda()
optimizer = torch.optim.Adam(field.parameters())
for _ in range(3):
    states = odeint_adjoint(field, torch.randn(4096, 64, device="cuda"), torch.linspace(0, 1, 10, device="cuda"), method="dopri5")
    assert states.shape == (10, 4096, 64)
    optimizer.zero_grad()
    states.pow(2).mean().backward()
    optimizer.step()
print("ok")
