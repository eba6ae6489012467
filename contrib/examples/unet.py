# SPDX-License-Identifier: Apache-2.0
"""A U-Net that segments images, in mixed precision with a gradient scaler."""
import torch
from torch import nn
from torch.utils.data import DataLoader

from synthetic import Masks

CLASSES, SIZE, BATCH, STEPS = 4, 256, 8, 100


def double(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self, widths=(64, 128, 256, 512)):
        super().__init__()
        self.down = nn.ModuleList(double(a, b) for a, b in zip((3, *widths[:-1]), widths))
        self.bottom = double(widths[-1], 2 * widths[-1])
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, stride=2) for w in reversed(widths))
        self.merge = nn.ModuleList(double(2 * w, w) for w in reversed(widths))
        self.head = nn.Conv2d(widths[0], CLASSES, 1)
        self.pool = nn.MaxPool2d(2)

    def forward(self, x):
        skips = []
        for block in self.down:
            skips.append(block(x))
            x = self.pool(skips[-1])
        x = self.bottom(x)
        for up, merge, skip in zip(self.up, self.merge, reversed(skips)):
            x = merge(torch.cat([skip, up(x)], dim=1))
        return self.head(x)


model = UNet().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cuda")
criterion = nn.CrossEntropyLoss()
loader = DataLoader(Masks(STEPS * BATCH, SIZE, CLASSES, 0.009), batch_size=BATCH, shuffle=True)
for step, (images, masks) in enumerate(loader):
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=torch.float16):
        loss = criterion(model(images.cuda()), masks.cuda())
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.3f} scale {scaler.get_scale():.0f}", flush=True)
