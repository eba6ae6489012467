# SPDX-License-Identifier: Apache-2.0
# What: a mixture of experts with top-k routing, by index lists, by capacity and by sorting; every token goes somewhere.
import torch

device = "cuda"
TOKENS, WIDTH, EXPERTS, K = 512, 128, 8, 2


class Experts(torch.nn.Module):
    def __init__(self, way):
        super().__init__()
        self.way = way
        self.router = torch.nn.Linear(WIDTH, EXPERTS)
        self.experts = torch.nn.ModuleList([torch.nn.Sequential(torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(),
                                                                torch.nn.Linear(4 * WIDTH, WIDTH)) for _ in range(EXPERTS)])

    def forward(self, x):
        gates, chosen = self.router(x).softmax(-1).topk(K, -1)
        gates = gates / gates.sum(-1, keepdim=True)
        return getattr(self, self.way)(x, gates, chosen)

    def lists(self, x, gates, chosen):  # as Mixtral
        out = torch.zeros_like(x)
        mask = torch.nn.functional.one_hot(chosen, EXPERTS).permute(2, 1, 0)
        self.routed = 0
        for number, expert in enumerate(self.experts):
            place, token = torch.where(mask[number])
            self.routed += token.shape[0]
            out.index_add_(0, token, expert(x[token]) * gates[token, place, None])
        return out

    def sorted(self, x, gates, chosen):  # as DeepSeek
        order = chosen.view(-1).argsort()
        counts = chosen.view(-1).bincount(minlength=EXPERTS).tolist()
        assert len(counts) == EXPERTS
        self.routed = sum(counts)
        token = order // K
        parts = [expert(x[index]) for expert, index in zip(self.experts, token.split(counts))]
        return torch.zeros_like(x).index_add_(0, token, torch.cat(parts) * gates.view(-1)[order, None])

    def capacity(self, x, gates, chosen):  # as Switch and GShard
        slots = K * TOKENS // EXPERTS
        self.routed = K * TOKENS
        one_hot = torch.nn.functional.one_hot(chosen[:, 0], EXPERTS)
        position = (one_hot.cumsum(0) - 1) * one_hot
        keep = (position < slots) & (one_hot > 0)
        dispatch = torch.nn.functional.one_hot(position.clamp(0, slots - 1), slots) * keep.unsqueeze(-1)
        inputs = torch.einsum("tes,td->esd", dispatch.to(x.dtype), x)
        outputs = torch.stack([expert(part) for expert, part in zip(self.experts, inputs)])
        return torch.einsum("tes,esd->td", dispatch * gates[:, :1, None], outputs)


for way in ("lists", "sorted", "capacity"):
    layer = Experts(way).to(device)
    optimizer = torch.optim.AdamW(layer.parameters())
    for _ in range(3):
        out = layer(torch.ones(TOKENS, WIDTH, device=device))
        assert out.shape == (TOKENS, WIDTH) and layer.routed == K * TOKENS, (way, layer.routed)
        loss = out.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert loss.item() > 0
    assert layer.router.weight.grad is not None

# Masks of many experts: 4 to 32 MiB of 64-bit numbers
for tokens, experts in ((4096, 64), (8192, 128), (16384, 128)):
    _, chosen = torch.randn(tokens, experts, device=device).softmax(-1).topk(K, -1)
    masks = torch.nn.functional.one_hot(chosen, experts).permute(2, 1, 0)
    routed = [torch.where(mask)[0].shape[0] for mask in masks]
    assert sum(routed) == K * tokens and max(routed) == K * tokens // experts, (tokens, experts, sum(routed), max(routed))
print("ok")
