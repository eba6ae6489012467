# SPDX-License-Identifier: Apache-2.0
# Training that changes on its way: a backbone that is frozen for its first epochs, a discriminator that joins later. What such a
# program has made and not begun to use is a reason to look at more of its steps than a stable peak would need.
import gc
import weakref

from . import record

_torch = None
_stepped = weakref.WeakSet()  # optimizers
_looked_at = None             # the rise of the peak since which was looked: it takes as long as a collection of garbage
_may_begin = False


def start(torch):
    global _torch
    _torch = torch


def stepped(optimizer):
    _stepped.add(optimizer)


def may_begin(last_rise):
    """Whether the program holds parameters on a GPU that ask for no gradient, or optimizers that have not stepped. `last_rise`: the
    step with the last new peak; the answer holds until there is another."""
    global _looked_at, _may_begin
    if _looked_at != last_rise:
        _looked_at, _may_begin = last_rise, False  # also where looking fails
        _may_begin = any(_look())
    return _may_begin


def has_optimizer():
    return any(issubclass(type(thing), _torch.optim.Optimizer) for thing in gc.get_objects())


def write_notes():
    """What the program has not begun although it was given time: for one that is ended early."""
    if not _may_begin:
        return
    frozen, idle = _look()
    if frozen:
        record.note("frozen", "parameters of %.1f MiB stayed frozen until the program was ended: training them later takes more" % (frozen / (1 << 20)), bytes=frozen)
    if idle:
        record.note("idle-optimizer", "%d of the optimizers had not stepped when the program was ended: what they train later takes more" % idle, count=idle)


def forget():
    """A forked child begins its own account."""
    global _looked_at, _may_begin
    _looked_at, _may_begin = None, False
    _stepped.clear()


def _look():
    """Bytes of parameters on a GPU that ask for no gradient; number of optimizers that have not stepped."""
    parameter, optimizer = _torch.nn.Parameter, _torch.optim.Optimizer
    frozen, optimizers = 0, []
    for thing in gc.get_objects():
        # Not isinstance(): it asks the object, and some import what they stand for.
        kind = type(thing)
        if issubclass(kind, parameter):
            if thing.is_cuda and not thing.requires_grad and thing.is_floating_point():
                frozen += thing.numel() * thing.element_size()
        elif issubclass(kind, optimizer):
            optimizers.append(thing)
    # A wrapper (accelerate's, DeepSpeed's) is an optimizer, too, and lets another step for it.
    trained = {id(one) for thing in _stepped for one in _parameters(thing)}
    return frozen, sum(1 for thing in optimizers if thing not in _stepped and not trained.intersection(map(id, _parameters(thing))))


def _parameters(optimizer):
    return [one for group in getattr(optimizer, "param_groups", ()) for one in group.get("params", ())]
