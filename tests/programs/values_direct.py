# SPDX-License-Identifier: Apache-2.0
# What: small operators that the tracer computes itself give what PyTorch's CPU kernels give: elementwise, foreach, sums, products.
# expect: output "^[1-9][0-9]+ operators, 0 wrong$"
# Also what it must leave to PyTorch: broadcasts, other orders of memory, types that mix, one tensor as several arguments.
import math
import sys

import torch

nan, inf = math.nan, math.inf
checked = wrong = 0


def to_device(v, made):
    if isinstance(v, torch.Tensor):
        if id(v) not in made:  # one tensor twice stays one tensor
            made[id(v)] = torch.empty_strided(v.size(), v.stride(), dtype=v.dtype, device="cuda").copy_(v)
        return made[id(v)]
    return type(v)(to_device(x, made) for x in v) if isinstance(v, (list, tuple)) else v


def flat(v):
    if isinstance(v, torch.Tensor):
        return [v.detach().cpu()]
    return [t for x in v for t in flat(x)] if isinstance(v, (list, tuple)) else []


def close(e, g):
    largest = e.double().nan_to_num(0, 0, 0).abs().max().item() if e.numel() else 0
    return e.dtype == g.dtype and e.shape == g.shape and torch.allclose(e.double(), g.double(), rtol=2e-5, atol=1e-6 * max(1, largest), equal_nan=True)


def check(what, function, *arguments, **options):
    """The function's result, and what it has made of its arguments, on both; three times: the first is the operator's first sight."""
    global checked, wrong
    copies = [[flat_copy(a) for a in arguments] for _ in range(2)]
    made = {}
    on_host, on_device = copies[0], [to_device(a, made) for a in copies[1]]
    for _ in range(3):
        try:
            expected = flat([function(*on_host, **options), on_host])
        except RuntimeError:  # not for these types, or not on this version's CPU
            return
        got = flat([function(*on_device, **options), on_device])
    checked += 1
    if len(expected) != len(got) or not all(map(close, expected, got)):
        wrong += 1
        print("not ok %s: expected %s, got %s" % (what, [e.flatten()[:6].tolist() for e in expected], [g.flatten()[:6].tolist() for g in got]))


def flat_copy(v):
    if isinstance(v, torch.Tensor):
        return torch.empty_strided(v.size(), v.stride(), dtype=v.dtype).copy_(v)
    return type(v)(flat_copy(x) for x in v) if isinstance(v, (list, tuple)) else v


torch.manual_seed(0)
a, b, c = torch.randn(300), torch.randn(300), torch.rand(300) + 0.5
odd = torch.tensor([nan, inf, -inf, 0.0, -0.0, 1.0, -1.0, 1e-40])
matrix, other = torch.randn(37, 11), torch.randn(37, 11)
one, long_one, double_one = torch.tensor(1.5), torch.tensor(3), torch.tensor(0.25, dtype=torch.double)

for name in ("neg", "sqrt", "rsqrt", "reciprocal", "relu"):
    for x in (c, odd, matrix.t(), matrix[:, 3:7], one, torch.empty(0), c.double(), c.half()):
        check(name, getattr(torch, name), x)
    check(name + "_", getattr(torch, name + "_"), c)
for name in ("add", "sub", "mul", "div", "maximum", "minimum", "gt", "ge", "lt", "le", "eq", "ne"):
    function = getattr(torch, name)
    pairs = [(a, b), (odd, odd.flip(0)), (a, one), (one, a), (a, long_one), (a, double_one), (matrix, other), (matrix.t(), other.t()), (matrix, other.t().contiguous().t()),
             (matrix, matrix[0]), (matrix, matrix[:, :1]), (matrix[:, ::2], other[:, ::2]), (one, one), (one, double_one), (long_one, long_one), (a, b.double()),
             (torch.arange(5), torch.arange(5.0)), (a.half(), b.half()), (torch.randn(1), torch.randn(3, 1))]
    for x, y in pairs:
        check(name, function, x, y)
    if name not in ("maximum", "minimum"):
        for x in (a, odd, matrix.t(), torch.arange(5)):
            for number in (2, 0.5, True, -0.0, inf, 2**40):
                check(name + " of a number", function, x, number)
for name in ("add_", "sub_", "mul_", "div_"):
    for x, y in ((a, b), (matrix.t(), other.t()), (a, one), (matrix, matrix[0]), (a, b.double()), (a, a), (a, 3), (a, 0.1), (torch.arange(4), 2)):
        if not (name == "div_" and not x.is_floating_point()):
            check(name, getattr(torch.Tensor, name), x, y)
check("add of a part", lambda x, y: x[10:20].add_(y[:10], alpha=0.5), a, b)
check("add alpha", torch.add, a, b, alpha=-2.5)
check("sub alpha", torch.sub, a, b, alpha=3)
for power in (2, 0.5, -0.5, 3, -1, 2.7, 0, 1):
    check("pow %s" % power, torch.pow, c, power)
    check("pow_ %s" % power, torch.Tensor.pow_, c, power)
check("pow of a number", torch.pow, 2.0, a)
check("pow of tensors", torch.pow, c, a)
for low, high in ((-0.5, 0.5), (None, 0.25), (0.0, None), (1.0, -1.0)):
    check("clamp", torch.clamp, a, low, high)
    check("clamp of odd ones", torch.clamp, odd, low, high)
    check("clamp_", torch.Tensor.clamp_, a, low, high)
check("clamp_min", torch.clamp_min, a, 0.1)
check("clamp_max", torch.clamp_max, odd, 0.1)
for weight in (0.1, 0.9, 0.5):
    check("lerp", torch.lerp, a, b, weight)
    check("lerp_", torch.Tensor.lerp_, matrix, other, weight)
check("lerp by a tensor", torch.lerp, a, b, c)
check("addcmul", torch.addcmul, a, b, c, value=0.3)
check("addcmul of parts", torch.addcmul, matrix, matrix[0], other[:, :1])
check("addcdiv_", torch.Tensor.addcdiv_, a, b, c, value=-0.3)
check("threshold", torch.ops.aten.threshold_backward, a, odd[:1].expand(300).clone(), 0)
check("threshold", torch.ops.aten.threshold_backward, a, b, 0)
check("fill_", torch.Tensor.fill_, matrix.t(), 2.5)
check("fill_ of a part", lambda x: x[:, 2:4].fill_(7), matrix)
check("zero_", torch.Tensor.zero_, a)

lists = [torch.randn(s) for s in ((64, 32), (64,), (), (3, 5, 7))]
more = [torch.rand(t.shape) + 0.5 for t in lists]
mixed = [t.double() if i % 2 else t for i, t in enumerate(lists)]
for name in ("add", "sub", "mul", "div"):
    for suffix in ("", "_"):
        function = getattr(torch, "_foreach_" + name + suffix)
        for x in (lists, mixed, [matrix.t(), matrix[:, 2:5]]):
            check("foreach %s%s" % (name, suffix), function, x, 1.5)
            check("foreach %s%s numbers" % (name, suffix), function, x, [0.5 * i + 1 for i in range(len(x))])
        check("foreach %s%s lists" % (name, suffix), function, lists, more)
        check("foreach %s%s with itself" % (name, suffix), function, lists, lists)
check("foreach add alpha", torch._foreach_add_, lists, more, alpha=0.1)
check("foreach add a tensor", lambda x, y: [t.add_(y) for t in x], lists, one)
for name in ("sqrt", "neg", "reciprocal"):
    check("foreach " + name, getattr(torch, "_foreach_" + name), more)
    check("foreach %s_" % name, getattr(torch, "_foreach_%s_" % name), more)
check("foreach lerp_", torch._foreach_lerp_, lists, more, 0.1)
check("foreach addcmul_", torch._foreach_addcmul_, lists, more, more, 0.1)
check("foreach addcdiv_", torch._foreach_addcdiv_, lists, lists, more, 0.1)
check("foreach addcdiv_ numbers", torch._foreach_addcdiv_, lists, lists, more, [0.1, 0.2, 0.3, 0.4])
check("foreach clamp_min_", torch._foreach_clamp_min_, lists, 0.2)
check("foreach norm", torch._foreach_norm, lists, 2)

for x in (a, matrix, matrix.t(), matrix[:, 1:3], odd, one, torch.arange(5), torch.empty(0), a.half()):
    check("sum", torch.sum, x)
    if x.is_floating_point():
        check("mean", torch.mean, x)
        check("norm", torch.linalg.vector_norm, x)
for dims in (0, 1, -2, (0, 1), (-1,)):
    for keep in (False, True):
        check("sum over %s" % (dims,), torch.sum, matrix, dims, keep)
        check("mean over %s" % (dims,), torch.mean, matrix, dims, keep)
        check("norm over %s" % (dims,), torch.linalg.vector_norm, matrix, 2, dims, keep)
check("sum in another type", torch.sum, a, dtype=torch.double)
check("norm 1", torch.linalg.vector_norm, a, 1)
for m, k, n in ((16, 32, 64), (1, 1, 1), (3, 70, 33), (5, 0, 4), (33, 64, 100), (90, 60, 100)):
    if k == 0 and torch.__version__ < "2.2":  # its addmm on CUDA returns another shape
        continue
    x, y = torch.randn(m, k), torch.randn(k, n)
    for left in (x, torch.randn(k, m).t(), torch.randn(m, 2 * k + 1)[:, : 2 * k : 2]):
        for right in (y, torch.randn(n, k).t()):
            check("mm %d %d %d" % (m, k, n), torch.mm, left, right)
            check("addmm %d %d %d" % (m, k, n), torch.addmm, torch.randn(n), left, right)
            check("addmm beta", torch.addmm, torch.randn(n), left, right, beta=0.5)
            check("addmm matrix", torch.addmm, torch.randn(m, n), left, right)
check("linear", torch.nn.functional.linear, torch.randn(4, 5, 8), torch.randn(6, 8), torch.randn(6))

print("%d operators, %d wrong" % (checked, wrong))
sys.exit(wrong > 0)
