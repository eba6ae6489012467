# SPDX-License-Identifier: Apache-2.0
# What: the shortest training script there is: a perceptron, SGD, no frills. Peak and accounting by hand.
# quick
import torch

WIDTH, BATCH, STEPS = 2048, 256, 12
model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
x, y = torch.randn(BATCH, WIDTH), torch.randint(0, 10, (BATCH,))
for step in range(STEPS):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda())
    loss.backward()
    optimizer.step()
assert loss.item() > 0, loss.item()
assert len(optimizer.state) == 4
# Weights, gradients and momentum, each a multiple of 512 bytes as the allocator gives them.
state = sum(3 * -(-p.numel() * 4 // 512) * 512 for p in model.parameters())
held = torch.cuda.memory_allocated()
assert state <= held <= state + 20 * 1024**2, (state, held)
assert torch.cuda.max_memory_allocated() >= held
print("ok", torch.__version__)
