# SPDX-License-Identifier: Apache-2.0
# Full fine-tuning of a model of Llama-3-70B's shape under FSDP2, built on meta and materialised in shards: a rank of 64.
#   WORLD_SIZE=64 RANK=0 gpumem estimate --gpu "H100 80GB HBM3" -- python llama_70b_fsdp2.py [layers] [tokens]
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
try:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
except ImportError:
    from torch.distributed._composable.fsdp import MixedPrecisionPolicy, fully_shard

LAYERS, TOKENS = int((sys.argv + ["80"])[1]), int((sys.argv + ["", "4096"])[2])
WIDTH, HEADS, KEY_HEADS, HIDDEN, WORDS = 8192, 64, 8, 28672, 128256
HEAD = WIDTH // HEADS


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def reset_parameters(self):
        nn.init.ones_(self.weight)

    def forward(self, x):
        return F.rms_norm(x, (WIDTH,), self.weight, 1e-5)


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.out = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.key, self.value = nn.Linear(WIDTH, KEY_HEADS * HEAD, bias=False), nn.Linear(WIDTH, KEY_HEADS * HEAD, bias=False)
        self.gate, self.up = nn.Linear(WIDTH, HIDDEN, bias=False), nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)
        self.before_attention, self.before_mlp = Norm(), Norm()

    def forward(self, x, cos, sin):
        batch, tokens, _ = x.shape
        y = self.before_attention(x)
        q, k, v = (part(y).view(batch, tokens, -1, HEAD).transpose(1, 2) for part in (self.query, self.key, self.value))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = (t.repeat_interleave(HEADS // KEY_HEADS, 1) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, tokens, WIDTH))
        y = self.before_mlp(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm, self.head = Norm(), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, ids, cos, sin):
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.head(self.norm(x))


dist.init_process_group("nccl")
device = torch.device("cuda", 0)
torch.cuda.set_device(device)
mesh = init_device_mesh("cuda", (dist.get_world_size(),))
with torch.device("meta"):
    model = Llama()
parameters = sum(p.numel() for p in model.parameters())
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for i, layer in enumerate(model.layers):
    model.layers[i] = checkpoint_wrapper(layer)
    fully_shard(model.layers[i], mesh=mesh, mp_policy=policy)
fully_shard(model, mesh=mesh, mp_policy=policy)
model.to_empty(device=device)
for module in model.modules():
    if hasattr(module, "reset_parameters"):
        module.reset_parameters()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
angles = torch.outer(torch.arange(TOKENS, device=device).float(), 1 / 500000 ** (torch.arange(0, HEAD, 2, device=device).float() / HEAD))
cos, sin = (f(torch.cat((angles, angles), -1)).bfloat16() for f in (torch.cos, torch.sin))
for step in range(100):
    ids = torch.randint(0, WORDS, (1, TOKENS), device=device)
    logits = model(ids, cos, sin)
    loss = F.cross_entropy(logits[:, :-1].float().flatten(0, 1), ids[:, 1:].flatten())
    del logits
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    print("step", step, "loss", loss.item(), flush=True)
print(f"{parameters / 1e9:.1f} billion parameters")
dist.destroy_process_group()
