# SPDX-License-Identifier: Apache-2.0
"""ViT-B/16 from torchvision in bfloat16 autocast, gradients accumulated over two batches."""
import torch
import torchvision
from torch.utils.data import DataLoader

from synthetic import Images

BATCH, ACCUMULATE, STEPS = 24, 2, 100

model = torchvision.models.vit_b_16(num_classes=100).to("cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
criterion = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
loader = DataLoader(Images(STEPS * BATCH, 224, 100, 0.003), batch_size=BATCH, shuffle=True)
for step, (images, labels) in enumerate(loader):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = criterion(model(images.to("cuda")), labels.to("cuda")) / ACCUMULATE
    loss.backward()
    if (step + 1) % ACCUMULATE == 0:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item() * ACCUMULATE:.3f}", flush=True)
