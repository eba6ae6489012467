#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training steps of many small operators: values.py WORKLOAD [--blocks 8] [--steps 25].

An ordinary program, run by tests/bench/bench.py with values followed and without. Prints a step's CPU time in seconds, as the median over
blocks of steps: some kernels count CPU time in ticks of 4 ms, as long as a step.
"""
import argparse
import statistics
import time

import torch

device = "cuda"


def adafactor():
    """The optimizer alone, with gradients that are known: what follows from small ones is computed."""
    from transformers import Adafactor

    shapes = [(768, 768), (768,)] * 60
    parameters = [torch.nn.Parameter(torch.randn(shape, device=device)) for shape in shapes]
    optimizer = Adafactor(parameters, relative_step=False, lr=1e-3)

    def step():
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()

    return step


def gpt2(optimizer_of=torch.optim.AdamW):
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config()).to(device)
    optimizer = optimizer_of(model.parameters())
    tokens = torch.randint(0, 50000, (8, 128), device=device)

    def step():
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def gpt2_adafactor():
    from transformers import Adafactor

    return gpt2(lambda parameters: Adafactor(parameters, relative_step=False, lr=1e-3))


def resnet50():
    import torchvision

    model = torchvision.models.resnet50().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler()
    images, labels = torch.randn(32, 3, 224, 224, device=device), torch.randint(0, 1000, (32,), device=device)

    def step():
        with torch.autocast("cuda"):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        loss.item()

    return step


def small():
    """A classifier all of whose values are small enough to be computed."""
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    samples, labels = torch.randn(16, 32, device=device), torch.randint(0, 10, (16,), device=device)

    def step():
        for _ in range(20):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(samples), labels)
            loss.backward()
            optimizer.step()
            loss.item()

    return step


WORKLOADS = {"gpt2": gpt2, "gpt2_adafactor": gpt2_adafactor, "resnet50": resnet50, "adafactor": adafactor, "small": small}
parser = argparse.ArgumentParser()
parser.add_argument("workload", choices=sorted(WORKLOADS))
parser.add_argument("--blocks", type=int, default=8)
parser.add_argument("--steps", type=int, default=25, help="of a block")
arguments = parser.parse_args()

torch.manual_seed(0)
step = WORKLOADS[arguments.workload]()
for _ in range(3):
    step()
seconds = []
for _ in range(arguments.blocks):
    start = time.process_time()
    for _ in range(arguments.steps):
        step()
    seconds.append((time.process_time() - start) / arguments.steps)
print(f"median_step_s={statistics.median(seconds):.6f}")
