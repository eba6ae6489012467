# SPDX-License-Identifier: Apache-2.0
# What: large tensors on the CPU: random numbers are those of the seed though nobody draws them before they are read.
# quick
import resource

import torch

BLOCK = 1 << 12  # bytes far below what is put off; a multiple of 16, so that pieces draw what the whole draws
LARGE = 3 << 19


def in_pieces(fill, count, dtype):
    pieces = [getattr(torch.empty(min(BLOCK, count - at), dtype=dtype), fill)() for at in range(0, count, BLOCK)]
    return torch.cat(pieces[:1] + [p for p in pieces[1:]])


def check(what, right):
    assert right, what


for dtype in (torch.float32, torch.bfloat16, torch.float64):
    for fill in ("normal_", "uniform_"):
        torch.manual_seed(7)
        expected, after = [], None
        small = [getattr(torch.empty(BLOCK, dtype=dtype), fill)() for _ in range(LARGE // BLOCK)]
        after = torch.rand(5)
        torch.manual_seed(7)
        large = getattr(torch.empty(LARGE, dtype=dtype), fill)()
        check("%s %s: what is drawn next" % (fill, dtype), torch.equal(torch.rand(5), after))
        check("%s %s: the first numbers" % (fill, dtype), torch.equal(large[:BLOCK], small[0]))
        check("%s %s: the last numbers" % (fill, dtype), torch.equal(large[-BLOCK:], small[-1]))

# Seeding again, and states saved in between.
torch.manual_seed(1)
first = torch.randperm(1000)
torch.manual_seed(1)
torch.randn(LARGE)
torch.manual_seed(1)
check("a second seed", torch.equal(torch.randperm(1000), first))
torch.manual_seed(2)
torch.randn(LARGE)
state = torch.get_rng_state()
ahead = torch.rand(4)
torch.set_rng_state(state)
check("a state that was saved", torch.equal(torch.rand(4), ahead))
own = torch.Generator().manual_seed(3)
again = torch.Generator().manual_seed(3)
torch.randn(LARGE, generator=own)
for _ in range(LARGE // BLOCK):
    torch.randn(BLOCK, generator=again)
check("a generator of the program's own", torch.equal(torch.randperm(100, generator=own), torch.randperm(100, generator=again)))

# What is derived, and who reads it.
torch.manual_seed(4)
x = torch.randn(LARGE)
y = (x * 0.5 + 1).to(torch.bfloat16).float()
z = x.clone().mul_(2).clamp_(-1, 1)
torch.manual_seed(4)
start = torch.randn(BLOCK)
check("numbers times numbers", torch.equal(y[:BLOCK], (start * 0.5 + 1).to(torch.bfloat16).float()))
check("in place", torch.equal(z[:BLOCK], (start * 2).clamp(-1, 1)))
check("numpy", (torch.randn(LARGE).numpy() != 0).mean() > 0.99)
check("item", torch.randn(LARGE)[17].item() != 0)
check("tolist", torch.randn(LARGE)[:2].tolist()[0] != 0)
data = torch.randn(2000, 3, 16, 16)
labels = (data.mean((1, 2, 3)) > 0).long()
check("labels made from random data have two classes", labels.unique().numel() == 2)
check("zeros are zeros", not torch.zeros(LARGE).any() and not torch.randn(LARGE).zero_().any())
check("ones are ones", bool(torch.ones(LARGE).all()))
part = torch.randn(LARGE)
part[:10] = 5
check("a part that was written", bool((part[:10] == 5).all()))

# A model far larger than the machine: made, cast, joined, moved.
layers = [torch.nn.Linear(16384, 16384, bias=False) for _ in range(16)]
joined = torch.cat([layers[0].weight.detach(), layers[1].weight.detach().t()]).to(torch.bfloat16).contiguous()
torch.nn.init.orthogonal_(layers[2].weight)
torch.nn.init.trunc_normal_(layers[3].weight, std=0.02)
device = joined.cuda()
back = device.cpu()
check("shapes", back.shape == (32768, 16384) and back.dtype == torch.bfloat16)
check("a norm over all of it is a number", torch.isfinite(sum(l.weight.detach().pow(2).sum() for l in layers)).item())
peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
check("%d MiB for 16 GiB of parameters" % peak_mib, peak_mib < 2048)
print("ok")
