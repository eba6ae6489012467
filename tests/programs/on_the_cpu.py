# SPDX-License-Identifier: Apache-2.0
# What: a training script that asks for the GPU by every usual way, for xMem's method, which answers with the CPU.
# needs: torch>=2.3
# options: --method=xmem
# early end
import sys

import torch
from torch import nn

assert torch.cuda.is_available() and torch.cuda.device_count() == 1
assert torch.cuda.get_device_properties(0).total_memory > 1 << 30
torch.cuda.set_device(0)
torch.cuda.manual_seed_all(0)
device = torch.device("cuda:0")

model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 32 * 32, 10)).to(device)
head = nn.Linear(10, 10, device="cuda").cuda()
optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=1e-3)
scaler = torch.amp.GradScaler("cuda")
images = torch.utils.data.TensorDataset(torch.randn(512, 3, 32, 32), torch.randint(0, 10, (512,)))
loader = torch.utils.data.DataLoader(images, batch_size=32, shuffle=True, pin_memory=True)
criterion = nn.CrossEntropyLoss()
stream = torch.cuda.Stream()

steps = 0
for epoch in range(4):
    for inputs, labels in loader:
        inputs, labels = inputs.to(device, non_blocking=True), labels.cuda()
        weights = torch.ones(10, device="cuda")
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = (criterion(head(model(inputs)), labels) * weights).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        with torch.cuda.stream(stream):
            torch.cuda.synchronize()
        assert torch.isfinite(loss) and torch.cuda.memory_allocated() == 0
        steps += 1
print("not ok: ran to its end after", steps, "steps", file=sys.stderr)
