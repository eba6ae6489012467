# SPDX-License-Identifier: Apache-2.0
# What: timm: mixed pictures, LAMB, an average of the weights, channels_last, accuracy among the best five.
# needs: timm
import timm
import torch
from timm.data import Mixup
from timm.loss import SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2
from timm.utils import ModelEmaV2, NativeScaler, accuracy

model = timm.create_model("efficientnet_b0", num_classes=100, drop_path_rate=0.2).cuda().to(memory_format=torch.channels_last)
average, optimizer, scaler = ModelEmaV2(model), create_optimizer_v2(model, opt="lamb", lr=1e-3), NativeScaler()
mixup = Mixup(mixup_alpha=0.2, cutmix_alpha=1.0, num_classes=100)
pictures = torch.utils.data.TensorDataset(torch.randn(64, 3, 128, 128), torch.randint(0, 100, (64,)))
for x, y in torch.utils.data.DataLoader(pictures, batch_size=16, num_workers=1, pin_memory=True):
    x, y = mixup(x.cuda(non_blocking=True).contiguous(memory_format=torch.channels_last), y.cuda(non_blocking=True))
    with torch.autocast("cuda", torch.float16):
        loss = SoftTargetCrossEntropy()(model(x), y)
    optimizer.zero_grad()
    scaler(loss, optimizer, clip_grad=1.0, parameters=model.parameters())
    average.update(model)
assert scaler.state_dict()["scale"] == 65536.0
with torch.no_grad():
    best, five = accuracy(average.module(x), torch.randint(0, 100, (16,), device="cuda"), topk=(1, 5))
assert 0 <= best.item() <= five.item() <= 100, (best, five)
print("ok")
