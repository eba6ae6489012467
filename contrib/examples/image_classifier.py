# SPDX-License-Identifier: Apache-2.0
"""ResNet-50 from torchvision on images, SGD with momentum."""
import torch
import torchvision
from torch.utils.data import DataLoader

from synthetic import Images

EPOCHS, BATCH = 2, 32

model = torchvision.models.resnet50(num_classes=100).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
criterion = torch.nn.CrossEntropyLoss()
train = DataLoader(Images(1792, 224, 100), batch_size=BATCH, shuffle=True, drop_last=True, num_workers=1, pin_memory=True)
test = DataLoader(Images(128, 224, 100), batch_size=BATCH)

for epoch in range(EPOCHS):
    model.train()
    for step, (images, labels) in enumerate(train):
        images, labels = images.cuda(non_blocking=True), labels.cuda(non_blocking=True)
        loss = criterion(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"epoch {epoch} step {step} loss {loss.item():.3f}", flush=True)
    schedule.step()
    model.eval()
    right = 0
    with torch.no_grad():
        for images, labels in test:
            right += (model(images.cuda()).argmax(1) == labels.cuda()).sum().item()
    print(f"epoch {epoch} accuracy {right / len(test.dataset):.3f}", flush=True)
torch.save(model.state_dict(), "image_classifier.pt")
