# SPDX-License-Identifier: Apache-2.0
# What: PyTorch Metric Learning: triplets are mined by distances that nobody computed.
# needs: pytorch-metric-learning
import torch
from pytorch_metric_learning import losses, miners

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(128, 512), torch.nn.ReLU(), torch.nn.Linear(512, 128)).cuda()
angular = losses.ArcFaceLoss(10, 128).cuda()
triplets, mined = losses.TripletMarginLoss(margin=0.2), miners.TripletMarginMiner(margin=0.2, type_of_triplets="semihard")
optimizer = torch.optim.Adam([*model.parameters(), *angular.parameters()])
for _ in range(4):
    labels = torch.randint(0, 10, (128,)).cuda()
    embedded = model(torch.randn(128, 128).cuda())
    loss = triplets(embedded, labels, mined(embedded, labels)) + angular(embedded, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
assert loss.isfinite()
print("ok")
