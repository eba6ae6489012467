# SPDX-License-Identifier: Apache-2.0
# What: MONAI: a U-Net over volumes in mixed precision, inference in sliding windows, Dice by class.
# needs: monai
import torch
from monai.data import DataLoader, Dataset, decollate_batch
from monai.inferers import sliding_window_inference
from monai.losses import DiceCELoss
from monai.metrics import DiceMetric
from monai.networks.nets import UNet
from monai.transforms import AsDiscrete

model = UNet(3, 1, 3, (16, 32, 64), (2, 2), num_res_units=2).cuda()
optimizer, scaler = torch.optim.AdamW(model.parameters()), torch.amp.GradScaler("cuda")
criterion, dice = DiceCELoss(to_onehot_y=True, softmax=True), DiceMetric(include_background=False)
loader = DataLoader(Dataset([{"scan": torch.randn(1, 64, 64, 64), "label": torch.randint(0, 3, (1, 64, 64, 64))} for _ in range(6)]), batch_size=2)
for batch in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda"):
        loss = criterion(model(batch["scan"].cuda()), batch["label"].cuda())
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
assert scaler.get_scale() == 65536.0
model.eval()
with torch.no_grad():
    for batch in loader:
        found = sliding_window_inference(batch["scan"].cuda(), (48, 48, 48), 4, model)
        dice([AsDiscrete(argmax=True, to_onehot=3)(one) for one in decollate_batch(found)],
             [AsDiscrete(to_onehot=3)(one) for one in decollate_batch(batch["label"].cuda())])
assert dice.aggregate().isfinite()
print("ok")
