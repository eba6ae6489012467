# SPDX-License-Identifier: Apache-2.0
# Training that changes on its way: a backbone that is frozen for its first epochs, a discriminator that joins later. What such a
# program has made and not begun to use is a reason to look at more of its steps than a stable peak would need.
import functools
import weakref

from . import attribution, record

_made = weakref.WeakSet()     # optimizers
_stepped = weakref.WeakSet()  # those that have stepped
_looked_at = None             # the rise of the peak since which was looked
_may_begin = False


def start(optimizer_class):
    original = optimizer_class.__init__

    @functools.wraps(original)
    def __init__(self, *args, **kwargs):
        _made.add(self)
        original(self, *args, **kwargs)

    optimizer_class.__init__ = __init__


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
    return len(_made) > 0


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
    # A wrapper (accelerate's, DeepSpeed's) may be an optimizer, too, and let another step for it.
    trained = {id(one) for optimizer in _stepped for one in _parameters(optimizer)}
    idle = [optimizer for optimizer in _made if optimizer not in _stepped and not trained.intersection(map(id, _parameters(optimizer)))]
    known = {id(one): one for optimizer in _made for one in _parameters(optimizer)}
    for root in attribution.roots():
        known.update((id(one), one) for one in root.parameters())
    for root in attribution.roots():
        for one in _adapted(root):
            known.pop(id(one), None)
    frozen = [one for one in known.values() if one.is_cuda and not one.requires_grad and one.is_floating_point()]
    return sum(one.numel() * one.element_size() for one in frozen), len(idle)


def _adapted(root):
    """Parameters of models that have adapters of PEFT (LoRA): what is frozen there stays so."""
    return [one for module in root.modules() if hasattr(module, "peft_config") for one in module.parameters()]


def _parameters(optimizer):
    return [one for group in getattr(optimizer, "param_groups", ()) for one in group.get("params", ())]
