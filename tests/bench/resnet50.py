#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ResNet-50 training steps on random images (fp32, SGD with momentum): resnet50.py DEVICE [--batch 32] [--steps 5].

An ordinary program, run by tests/bench/bench.py on the CPU and under gpumem estimate. Prints its median step in seconds.
"""
import argparse
import statistics
import time

import torch
from torchvision.models import resnet50

parser = argparse.ArgumentParser()
parser.add_argument("device")
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--steps", type=int, default=5)
parser.add_argument("--warm-up", type=int, default=2)
arguments = parser.parse_args()

device = torch.device(arguments.device)
model = resnet50().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
criterion = torch.nn.CrossEntropyLoss()
images = torch.randn(arguments.batch, 3, 224, 224)
labels = torch.randint(0, 1000, (arguments.batch,))
seconds = []
for _ in range(arguments.warm_up + arguments.steps):
    start = time.perf_counter()
    optimizer.zero_grad()
    loss = criterion(model(images.to(device)), labels.to(device))
    loss.backward()
    optimizer.step()
    loss.item()
    seconds.append(time.perf_counter() - start)
print(f"median_step_s={statistics.median(seconds[arguments.warm_up:]):.6f}")
