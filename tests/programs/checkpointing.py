# SPDX-License-Identifier: Apache-2.0
# What: gradient accumulation, and activation checkpointing (reentrant or not) that lowers the peak as it should.
import torch
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

device = "cuda"
BLOCKS, BATCH, WIDTH = 8, 2048, 1024


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.nn.functional.dropout(torch.nn.functional.gelu(self.up(x)), 0.1))


blocks = torch.nn.ModuleList([Block() for _ in range(BLOCKS)]).to(device)


def peak(forward):
    blocks.zero_grad(set_to_none=True)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    base = torch.cuda.memory_allocated()
    x = torch.ones(BATCH, WIDTH, device=device, requires_grad=True)
    forward(x).square().mean().backward()
    assert x.grad is not None and all(p.grad is not None for p in blocks.parameters())
    gradients = sum(p.grad.numel() * 4 for p in blocks.parameters())
    return torch.cuda.max_memory_allocated() - base - gradients


def plain(x):
    for block in blocks:
        x = block(x)
    return x


def each(reentrant):
    def forward(x):
        for block in blocks:
            x = checkpoint(block, x, use_reentrant=reentrant)
        return x

    return forward


whole = peak(plain)
lowered = {"reentrant": peak(each(True)), "not reentrant": peak(each(False)),
           "sequential": peak(lambda x: checkpoint_sequential(list(blocks), BLOCKS, x, use_reentrant=False))}
hidden = BATCH * 4 * WIDTH * 4  # one activation of the widest kind
assert whole > 1.5 * BLOCKS * hidden, whole / hidden  # of each block two wide activations, less what gradients are by then
for name, bytes_ in lowered.items():
    assert bytes_ < whole / 2, (name, bytes_, whole)
assert abs(lowered["reentrant"] - lowered["not reentrant"]) <= 0.15 * whole, lowered

# Gradients of four micro-batches add up in place: the second to fourth need no memory beyond the first's peak.
blocks.zero_grad(set_to_none=True)
optimizer = torch.optim.AdamW(blocks.parameters())
peaks, steps = [], 0
for micro in range(8):
    torch.cuda.reset_peak_memory_stats()
    loss = plain(torch.ones(256, WIDTH, device=device)).square().mean() / 4
    loss.backward()
    gradient = blocks[0].up.weight.grad
    if micro % 4 == 3:
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        assert blocks[0].up.weight.grad is gradient
        steps += 1
    peaks.append(torch.cuda.max_memory_allocated())
assert steps == 2 and float(optimizer.state[blocks[0].up.weight]["step"]) == 2
assert peaks[5] == peaks[6], peaks
print("ok")
