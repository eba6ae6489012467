# SPDX-License-Identifier: Apache-2.0
# What: a backbone that is frozen for its first epochs is trained before the program is ended early, and a discriminator that joins late.
# early end
# quick
# expect: that e["stopped_early"] and e["peak_allocated_bytes"] >= 2 * 512 << 20
# expect: output "^backbone trained$"
# expect: no-note "stayed frozen"
import importlib.util
import sys

# As libraries do that can work without it; datasets and transformers among them.
assert importlib.util.find_spec("torch")

import torch
from torch import nn

torch.manual_seed(0)
# 512 MiB of parameters, whose gradients and optimizer state exist only once they are trained.
backbone = nn.Sequential(*[nn.Linear(4096, 4096, bias=False) for _ in range(8)]).cuda().requires_grad_(False)
head = nn.Linear(4096, 10).cuda()
optimizer = torch.optim.Adam(head.parameters())
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(400, 4096), torch.randint(0, 10, (400,))), batch_size=8)
for epoch in range(40):
    if epoch == 5:
        backbone.requires_grad_(True)
        optimizer = torch.optim.Adam([*backbone.parameters(), *head.parameters()], lr=1e-5)
    for x, y in loader:
        loss = nn.functional.cross_entropy(head(backbone(x.cuda())), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if epoch == 5:
        print("backbone trained", flush=True)
print("the end is not reached", file=sys.stderr)
