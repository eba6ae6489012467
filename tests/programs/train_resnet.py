# SPDX-License-Identifier: Apache-2.0
# What: torchvision's ResNet-50 with autocast, channels_last and a cosine schedule; evaluation; a checkpoint written and read.
# needs: torchvision
import io
import math

import torch
import torchvision

model = torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
scaler = (torch.amp if hasattr(torch.amp, "GradScaler") else torch.cuda.amp).GradScaler()
images = torch.zeros(16, 3, 224, 224).to(memory_format=torch.channels_last)
labels = torch.randint(0, 1000, (16,))
for step in range(4):
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda"):
        loss = torch.nn.functional.cross_entropy(model(images.cuda(non_blocking=True)), labels.cuda())
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    schedule.step()
assert math.isfinite(loss.item()) and loss.item() != 0, loss
assert scaler.get_scale() == 65536.0, scaler.get_scale()
assert model.bn1.num_batches_tracked.item() == 4
assert len(optimizer.state) == len(list(model.parameters()))
peak = torch.cuda.max_memory_allocated()
assert 0.8 < peak / 2**30 < 2.5, peak
model.eval()
with torch.no_grad(), torch.autocast("cuda", dtype=torch.float16):
    top = model(images.cuda()).topk(5).indices
assert top.shape == (16, 5) and 0 <= int(top.min()) and int(top.max()) < 1000
file = io.BytesIO()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
file.seek(0)
saved = torch.load(file, map_location="cpu")
model.load_state_dict(saved["model"])
optimizer.load_state_dict(saved["optimizer"])
assert saved["model"]["bn1.num_batches_tracked"].item() == 4
print("ok", peak)
