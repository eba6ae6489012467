# SPDX-License-Identifier: Apache-2.0
# What: flex_attention, compiled, with a score function and a block mask, forward and backward.
# needs: torch>=2.5
# timeout: 300
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

device = "cuda"
B, H, S, D = 2, 4, 1024, 64
q, k, v = [torch.ones(B, H, S, D, device=device, dtype=torch.float16, requires_grad=True) for _ in range(3)]
compiled = torch.compile(flex_attention)


def causal(b, h, i, j):
    return i >= j


mask = create_block_mask(causal, None, None, S, S, device=device)
compiled(q, k, v, block_mask=mask).sum().backward()  # what compiling took is of no interest here
torch.cuda.reset_peak_memory_stats()
before = torch.cuda.memory_allocated()
out = compiled(q, k, v, block_mask=mask)
assert out.shape == q.shape
out.sum().backward()
used = torch.cuda.max_memory_allocated() - before
assert q.grad.shape == q.shape
assert used < 2 * B * H * S * S * 2, used  # no matrix of all scores
out = compiled(q, k, v, score_mod=lambda score, b, h, i, j: score + (i - j) * 0.1)
out.sum().backward()
print("ok")
