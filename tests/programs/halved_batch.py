# SPDX-License-Identifier: Apache-2.0
# What: a program that catches OutOfMemoryError and halves its batch until it fits.
# options: --capacity 2G
import gc

import torch

device = "cuda"
model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU()) for _ in range(12)]).to(device)
optimizer = torch.optim.Adam(model.parameters())


def step(batch):
    optimizer.zero_grad(set_to_none=True)
    loss = model(torch.ones(batch, 1024, device=device)).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


batch, refused = 1 << 18, 0
while True:
    try:
        for _ in range(3):
            assert step(batch) > 0
        break
    except torch.cuda.OutOfMemoryError:
        refused += 1
        optimizer.zero_grad(set_to_none=True)
        gc.collect()
        torch.cuda.empty_cache()
        batch //= 2
# 24 activations of 4 KiB a sample, 192 MiB of weights, gradients and states, about 250 MiB of context: some 14000 samples fit into 2 GiB.
assert refused >= 3 and 4096 <= batch <= 32768, (refused, batch)
assert torch.cuda.memory_stats()["num_ooms"] == refused
assert torch.cuda.max_memory_reserved() <= torch.cuda.get_device_properties(0).total_memory
print("ok")
