# SPDX-License-Identifier: Apache-2.0
# What: torch.compile: training step through inductor and Triton, worker processes included, dynamic shapes, a graph break.
# timeout: 300
import torch

device = "cuda"


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.norm, self.down = torch.nn.Linear(512, 2048), torch.nn.LayerNorm(2048), torch.nn.Linear(2048, 512)

    def forward(self, x):
        return x + torch.nn.functional.dropout(self.down(self.norm(torch.nn.functional.gelu(self.up(x)))), 0.1)


model = Model().to(device)
optimizer = torch.optim.AdamW(model.parameters())
compiled = torch.compile(model)


def step(batch):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = compiled(torch.ones(batch, 512, device=device)).float().square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


for batch in (256, 256, 256):
    assert step(batch) > 0
torch.cuda.reset_peak_memory_stats()
step(256)
first = torch.cuda.max_memory_allocated()
torch.cuda.reset_peak_memory_stats()
step(256)
assert torch.cuda.max_memory_allocated() == first
for batch in (300, 310, 320):  # dynamic shapes from the second size on
    assert step(batch) > 0
assert torch._dynamo.utils.counters["stats"]["unique_graphs"] >= 1


@torch.compile
def broken(x):
    y = x * 2
    print("", end="")
    return (y + 1).relu().sum(-1)


assert broken(torch.ones(64, 1000, device=device)).shape == (64,)
print("ok")
