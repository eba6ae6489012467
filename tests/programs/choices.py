# SPDX-License-Identifier: Apache-2.0
# What: choices by values that nobody computed: sorted orders are orders, graphs keep their sizes when nodes are dropped, text goes on.
# quick
# expect: note "aten::sort"
import torch

torch.manual_seed(0)
features = torch.randn(20000, 64, device="cuda")
score = (features @ torch.randn(64, device="cuda")).tanh()  # unknown: too large to be computed

# A sort of unknown values is an order of all elements, along any dimension.
order = torch.sort(score, descending=True)[1]
assert order.unique().numel() == 20000 and order.sum().item() == 20000 * 19999 // 2
rows = score.view(200, 100)
assert torch.argsort(rows, dim=0).sum().item() == 100 * (200 * 199 // 2)
assert torch.sort(rows, stable=True, dim=1)[1].sum().item() == 200 * (100 * 99 // 2)

# Top-k pooling of 64 graphs in one batch, as PyTorch Geometric does it: half of each graph's nodes stay.
nodes = torch.full((64,), 300)
nodes[-1] = 20000 - 63 * 300
graph = torch.repeat_interleave(torch.arange(64), nodes).cuda()
keep = (nodes * 0.5).ceil().long().cuda()
by_score = graph[order]
by_graph, place = torch.sort(by_score, stable=True)
first = torch.cumsum(nodes.cuda(), 0) - nodes.cuda()
kept = order[place[torch.arange(20000, device="cuda") - first[by_graph] < keep[by_graph]]]
assert kept.numel() == keep.sum().item(), (kept.numel(), keep.sum().item())
assert graph[kept].max().item() + 1 == 64 and torch.bincount(graph[kept], minlength=64).tolist() == keep.tolist()

# Greedy text, and that of beams, does not end at once with the first words of the vocabulary.
words = torch.randn(4, 32000, device="cuda")
chosen = words.argmax(-1).tolist()
assert len(set(chosen)) == 4 and min(chosen) > 100, chosen
best = torch.topk(words.view(1, -1), 8)[1]
assert min((best % 32000).flatten().tolist()) > 100, best
drawn = torch.multinomial(words.softmax(-1), 1).flatten().tolist()
assert len(set(drawn)) == 4 and min(drawn) > 100, drawn
# Experts are chosen evenly.
assert torch.bincount(torch.topk(torch.randn(4096, 16, device="cuda"), 2)[1].flatten(), minlength=16).tolist() == [512] * 16
print("ok")
