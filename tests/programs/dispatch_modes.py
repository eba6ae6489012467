# SPDX-License-Identifier: Apache-2.0
# What: values inside dispatch modes and tensor subclasses in Python: counters, selective checkpoints, wrappers, jagged and fake tensors.
# needs: torch>=2.4
# quick
# expect: no-note "not followed"
import functools

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
from torch.utils.flop_counter import FlopCounterMode

device = "cuda"


class Seen(TorchDispatchMode):
    def __init__(self, more=0):
        super().__init__()
        self.names, self.more = [], more

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        self.names.append(function.__name__)
        result = function(*arguments, **(options or {}))
        return result + self.more if self.more and function is torch.ops.aten.mul.Tensor else result


with Seen() as seen:
    x = torch.tensor([1.0, 2.0, 3.0], device=device)
    assert (x * 2).sum().item() == 12 and x[x > 1].shape == (2,) and (x > 1).nonzero().tolist() == [[1], [2]]
    x.add_(1)
assert x.tolist() == [2.0, 3.0, 4.0] and "mul.Tensor" in seen.names  # written inside, read outside
with Seen(more=1), Seen():
    assert (x * 2).tolist() == [5.0, 7.0, 9.0]  # what a handler makes of it
with FlopCounterMode(display=False) as counter:
    rows = torch.arange(8, device=device)
    product = torch.ones(4, 8, device=device) @ torch.ones(8, 2, device=device)
assert rows[rows > 5].shape == (2,) and product.tolist() == [[8.0, 8.0]] * 4 and counter.get_total_flops() == 128


class Fails(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        raise ValueError("no")


try:
    with Fails():
        torch.ones(2, device=device)
    raise AssertionError("an error in a handler was lost")
except ValueError:
    pass
assert (torch.arange(3, device=device) + 1).tolist() == [1, 2, 3]


# A wrapper, as of quantized weights
class Wrapper(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), options=None):
        bare = tree_map(lambda a: a.inner if isinstance(a, Wrapper) else a, (arguments, options or {}))
        return tree_map(lambda a: Wrapper(a) if isinstance(a, torch.Tensor) else a, function(*bare[0], **bare[1]))


wrapped = Wrapper(torch.arange(5, device=device)) * 2 + 1
assert wrapped.inner.tolist() == [1, 3, 5, 7, 9] and wrapped.inner[wrapped.inner > 3].shape == (3,) and wrapped.sum().item() == 25

# Selective checkpoints: what is computed again sees the same values.
weight, sizes = torch.ones(4, 4, device=device, requires_grad=True), []


def block(x):
    hidden = x @ weight
    sizes.append(hidden[hidden.detach() > 3].shape[0])
    return hidden.sigmoid()


def policy(context, operator, *arguments, **options):
    return CheckpointPolicy.MUST_SAVE if operator == torch.ops.aten.mm.default else CheckpointPolicy.PREFER_RECOMPUTE


out = checkpoint(block, torch.ones(2, 4, device=device), use_reentrant=False,
                 context_fn=functools.partial(create_selective_checkpoint_contexts, policy))
out.sum().backward()
assert sizes == [8, 8] and abs(weight.grad[0, 0].item() - 2 * 0.0176627) < 1e-5

# Fake tensors beside real ones
with FakeTensorMode(allow_non_fake_inputs=True) as mode:
    fake = torch.nn.Linear(1 << 16, 1 << 16, device=device)(torch.empty(8, 1 << 16, device=device))
    assert fake.shape == (8, 1 << 16) and fake.device.type == "cuda"
    try:
        fake.sum().item()
        raise AssertionError("a fake tensor has a value")
    except RuntimeError:
        pass
assert torch.cuda.memory_reserved() < 1 << 30
assert (torch.arange(3, device=device) * 2).tolist() == [0, 2, 4]

# Jagged tensors
ragged = torch.nested.nested_tensor([torch.ones(2, 3, device=device), torch.ones(4, 3, device=device) * 2], layout=torch.jagged)
assert (ragged * 2).values().sum().item() == 60 and ragged.offsets().tolist() == [0, 2, 6] and [t.shape[0] for t in ragged.unbind()] == [2, 4]


# Graph breaks that depend on values
@torch.compile(backend="aot_eager")
def branches(x):
    y = x * 2
    return y[y > 2] if y.sum() > 3 else y


assert branches(torch.arange(5, device=device)).tolist() == [4, 6, 8]
assert branches(torch.zeros(5, dtype=torch.long, device=device)).tolist() == [0] * 5
assert branches(torch.arange(6, device=device) + 1).tolist() == [4, 6, 8, 10, 12]
print("ok")
