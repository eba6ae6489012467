# SPDX-License-Identifier: Apache-2.0
# What: small values come out as on a real GPU, whichever way they were made, moved and computed.
# expect: output "^[1-9][0-9]+ values, 0 wrong$"
# Prints "not ok NAME: …" for each that does not. Run by 0155-values.t and 0157-older-torch.t too.
import sys
import threading

import torch

device = "cuda"
checked = wrong = 0


def expect(name, compute, expected):
    global checked, wrong
    checked += 1
    try:
        got = compute()
    except Exception as error:
        got = "%s: %s" % (type(error).__name__, str(error)[:200])
    if got != expected:
        wrong += 1
        print("not ok %s: expected %r, got %r" % (name, expected, got))


def on(values, **options):
    return torch.tensor(values, device=device, **options)


mask = torch.ones(32, 1024, dtype=torch.long)
padded = mask.clone()
padded[3, 700:] = 0

# Made on the host, made on the device, moved by every route
expect("arange moved", lambda: torch.arange(5).cuda().sum().item(), 10)
expect("arange made there", lambda: torch.arange(5, device=device).sum().item(), 10)
expect("tensor", lambda: (on([1, 2, 3]) + 1).tolist(), [2, 3, 4])
expect("as_tensor", lambda: (torch.as_tensor([1, 2], device=device) * 2).tolist(), [2, 4])
expect("new_tensor", lambda: (torch.zeros(1, device=device).new_tensor([1, 2]) * 2).tolist(), [2.0, 4.0])
expect("full", lambda: torch.full((2, 2), 7.0, device=device).sum().item(), 28.0)
expect("linspace", lambda: torch.linspace(0, 1, 3, device=device).tolist(), [0.0, 0.5, 1.0])
expect("pinned", lambda: (torch.arange(4).pin_memory().to(device, non_blocking=True) * 2).tolist(), [0, 2, 4, 6])
expect("half", lambda: (torch.ones(2, device=device).half() * 3).tolist(), [3.0, 3.0])
expect("to and fro", lambda: torch.arange(6, device=device).reshape(2, 3).t().cpu().tolist(), [[0, 3], [1, 4], [2, 5]])
expect("scalar", lambda: float(on(2.5)), 2.5)
expect("truth", lambda: bool(on([1, 1]).all()), True)
expect("comparison", lambda: 1 if on(3) > on(2) else 0, 1)

# Masks larger than a small copy
expect("a whole attention mask", lambda: (mask.to(device) == 1).all().item(), True)
expect("a padded attention mask", lambda: (padded.to(device) == 1).all().item(), False)
expect("lengths from a mask", lambda: padded.to(device).sum(-1)[2:5].tolist(), [1024, 700, 1024])
expect("positions from a mask", lambda: (padded.to(device).cumsum(-1) - 1)[3, 698:702].tolist(), [698, 699, 699, 699])
expect("a mask back on the host", lambda: padded.to(device).cpu().sum().item(), 32 * 1024 - 324)

# In place, out=, views, lists
x = torch.zeros(4, device=device)
x[1] = 3
x[2] = x[1] * 2
x.add_(1)
expect("in place", lambda: x.tolist(), [1.0, 4.0, 7.0, 1.0])
x.view(2, 2)[1].mul_(2)
expect("through a view", lambda: x.tolist(), [1.0, 4.0, 14.0, 2.0])
expect("out", lambda: torch.add(on([1.0]), 1, out=torch.empty(1, device=device)).tolist(), [2.0])
steps = [torch.zeros((), device=device), torch.ones(3, device=device)]
torch._foreach_add_(steps, 1)
expect("lists", lambda: [t.sum().item() for t in steps], [1.0, 6.0])
whole = [on([1, 2])]
torch._foreach_add_(whole, 1)
expect("lists of integers, once", lambda: whole[0].tolist(), [2, 3])

# Sizes from values
expect("nonzero", lambda: on([0, 1, 0, 2]).nonzero().tolist(), [[1], [3]])
expect("where", lambda: torch.where(on([1.0, -1.0, 2.0]) > 0)[0].tolist(), [0, 2])
expect("boolean index", lambda: torch.arange(6, device=device)[on([True, False, True, False, True, True])].tolist(), [0, 2, 4, 5])
expect("masked_select", lambda: torch.arange(6, device=device).masked_select(torch.arange(6, device=device) > 3).tolist(), [4, 5])
expect("masked labels", lambda: (on([-100, 5, -100, 7]) != -100).sum().item(), 2)
expect("unique", lambda: [t.tolist() for t in torch.unique(on([3, 1, 3, 2]), return_inverse=True, return_counts=True)],
       [[1, 2, 3], [2, 0, 2, 1], [1, 1, 2]])
expect("unique rows", lambda: sorted(torch.unique(on([[3, 1], [3, 1], [2, 2]]), dim=0).tolist()), [[2, 2], [3, 1]])
expect("unique_consecutive", lambda: torch.unique_consecutive(on([3, 3, 1, 3])).tolist(), [3, 1, 3])
expect("bincount", lambda: torch.bincount(on([0, 1, 1, 5])).tolist(), [1, 2, 0, 0, 0, 1])
expect("repeat_interleave", lambda: torch.repeat_interleave(on([0, 1, 2]), on([1, 0, 3])).tolist(), [0, 2, 2, 2])
expect("one_hot", lambda: torch.nn.functional.one_hot(on([0, 2])).tolist(), [[1, 0, 0], [0, 0, 1]])

# Arithmetic, randomness, other ways in
expect("matmul", lambda: (torch.eye(3, device=device) @ torch.arange(3.0, device=device)).tolist(), [0.0, 1.0, 2.0])
expect("sort", lambda: on([3, 1, 2]).sort().indices.tolist(), [1, 2, 0])
expect("topk", lambda: on([3.0, 1.0, 2.0]).topk(2).values.tolist(), [3.0, 2.0])
expect("equal", lambda: torch.equal(on([1, 2]), on([1, 2])), True)
expect("inverse", lambda: torch.linalg.inv(torch.eye(3, device=device) * 2).diagonal().tolist(), [0.5, 0.5, 0.5])
expect("randint stays in its range", lambda: (lambda r: r.min().item() >= 5 and r.max().item() < 9)(torch.randint(5, 9, (50,), device=device)), True)
expect("randperm", lambda: sorted(torch.randperm(5, device=device).tolist()), [0, 1, 2, 3, 4])
expect("multinomial", lambda: torch.multinomial(on([0.0, 1.0, 0.0]), 1).item(), 1)
torch.manual_seed(7)
before = torch.initial_seed(), torch.rand(1).item()
torch.manual_seed(7)
torch.randint(0, 9, (8,), device=device)
expect("the host's generator is not used for the device", lambda: (torch.initial_seed(), torch.rand(1).item()), before)
expect("inference mode", lambda: torch.inference_mode()(lambda: (on([1]) + 1).item())(), 2)
expect("vmap", lambda: torch.vmap(lambda a: a.sum())(torch.arange(6.0, device=device).reshape(2, 3)).tolist(), [3.0, 12.0])
expect("func.grad", lambda: torch.func.grad(lambda a: (a * a).sum())(on([0.0, 1.0])).tolist(), [0.0, 2.0])
from_thread = []
thread = threading.Thread(target=lambda: from_thread.append((torch.arange(4, device=device) + 1).tolist()))
thread.start()
thread.join()
expect("another thread", lambda: from_thread, [[1, 2, 3, 4]])
layer = torch.nn.Linear(10, 2).to(device)
batch = torch.randn(4, 10)
loss = layer(batch.to(device)).square().mean()
loss.backward()
expected = torch.nn.functional.linear(batch, layer.weight.detach().cpu(), layer.bias.detach().cpu()).square().mean()
expect("a small model's loss", lambda: abs(loss.item() - expected.item()) < 1e-5, True)
weight, gradient = layer.weight.detach().cpu().clone(), layer.weight.grad.cpu()
torch.optim.SGD(layer.parameters(), lr=0.1).step()
expect("a small model's step", lambda: torch.allclose(layer.weight.detach().cpu(), weight - 0.1 * gradient), True)
copy = on([1, 2, 3])
del x, steps, whole, copy
expect("a reused address is a new tensor", lambda: torch.empty(3, device=device, dtype=torch.long).fill_(4).tolist(), [4, 4, 4])

# What was not computed
big = torch.randn(1000, 1000, device=device)
expect("an unknown mean is healthy", lambda: big.mean().item() == 1.0, True)
expect("nothing unknown is nan", lambda: torch.isnan(big).any().item(), False)
expect("everything unknown is finite", lambda: torch.isfinite(big).all().item(), True)
expect("an unknown mask selects everything", lambda: tuple(big[big > 0].shape), (1000000,))
expect("unknown values are all different", lambda: tuple(torch.unique(big).shape), (1000000,))

# Left alone
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

with FakeTensorMode():
    fake = torch.empty(3, 3, device=device) + 1
expect("fake tensors", lambda: (tuple(fake.shape), "FakeTensor" in repr(fake)), ((3, 3), True))
compiled = torch.compile(lambda a: a * 2 + 1, backend="aot_eager")
compiled(on([1.0, 2.0]))  # the first call runs inside a dispatch mode of the compiler's, where values are not followed
expect("a compiled graph", lambda: compiled(on([1.0, 2.0])).tolist(), [3.0, 5.0])
expect("a compiled graph of another size", lambda: compiled(on([1.0, 2.0, 3.0])).shape[0], 3)
expect("a large fill is random", lambda: 4 < torch.empty(1 << 20).normal_().abs().max().item() < 7, True)
expect("a small fill is random", lambda: torch.empty(100).normal_().abs().max().item() > 0, True)
expect("large integers are random", lambda: torch.randint(0, 9, (1 << 20,)).max().item(), 8)
print("%d values, %d wrong" % (checked, wrong))
sys.exit(wrong > 0)
