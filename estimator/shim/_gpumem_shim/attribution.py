# SPDX-License-Identifier: Apache-2.0
# Whose memory it is: which nn.Module's forward runs, and where parameters, gradients and optimizer state lie. Only in the
# first steps, since every step after them looks the same. Written for `gpumem explain`; see doc/contracts.md, "Record".
import functools
import threading
import weakref

from . import record, tracer

# Steps that are looked at: optimizer state exists from the second on, and warm-up effects are over by the fourth.
STEPS = 4
# A line lists at most this many tensors; models with more are attributed in part, and the line says so.
MOST_TENSORS = 100000

_torch = None
root_called = lambda: None  # noqa: E731  told of the program's own calls of modules, while they are followed
_hooks = []
_numbers = {}           # id(module) -> (weak reference, number)
_roots = []             # weak references to the modules that the program itself calls
_stacks = threading.local()
_done = False


def start(torch):
    global _torch
    _torch = torch
    if not tracer.follows():
        return
    modules = torch.nn.modules.module
    _hooks.append(modules.register_module_forward_pre_hook(_enter))
    try:
        _hooks.append(modules.register_module_forward_hook(_leave, always_call=True))
    except TypeError:  # before 2.1: an exception in a forward leaves its module entered, until one further out is left
        _hooks.append(modules.register_module_forward_hook(_leave))
    # Hooks would become part of what torch.compile compiles.
    original = torch.compile

    @functools.wraps(original)
    def compile(*args, **kwargs):
        stop()
        return original(*args, **kwargs)

    torch.compile = compile


def stop():
    """Takes the hooks out of the program's way. What has been attributed stays."""
    global _done
    _done = True
    while _hooks:
        _hooks.pop().remove()


def _enter(module, _inputs):
    try:
        stack = getattr(_stacks, "modules", None)
        if stack is None:
            stack = _stacks.modules = []
        if not stack:
            root_called()
        known = _numbers.get(id(module))
        if known is None or known[0]() is not module:
            known = _name(module, root=not stack)
        stack.append((id(module), tracer.enter_module(known[1])))
    except Exception:
        stop()


def _leave(module, _inputs, _output):
    try:
        stack = getattr(_stacks, "modules", None)
        if not stack or all(entry[0] != id(module) for entry in stack):
            return
        while stack:
            entered, before = stack.pop()
            if entered == id(module):
                tracer.enter_module(before)
                return
    except Exception:
        stop()


def _name(module, root):
    """Gives numbers to a module and, where the program itself calls it, to all that it contains, by their paths."""
    if root:
        _roots.append(weakref.ref(module))
        for path, child in module.named_modules():
            _number(child, path or type(module).__name__)
    known = _numbers.get(id(module))
    if known is None or known[0]() is not module:  # made on the fly, or called from outside its parent
        known = _number(module, type(module).__name__)
    return known


def _number(module, path):
    number = len(_numbers) + 1 if len(_numbers) < 65535 else 0
    known = _numbers[id(module)] = (weakref.ref(module), number)
    if number:
        record.write("module", n=number, path=path, type=type(module).__name__)
    return known


def roots():
    """The modules that the program itself has called, of those that live."""
    return [root for root in (reference() for reference in _roots) if root is not None]


def after_step(optimizer, step, risen):
    """Lists the addresses of what lives on across steps, as they are after this one."""
    if _done and not risen:
        return
    if step > STEPS:
        stop()
        if not risen:
            return
    try:
        _write(optimizer, step)
    except Exception as error:
        stop()
        record.note("events", "what memory belongs to could not be listed: %s" % error)


def _write(optimizer, step):
    found = {}  # device -> kind -> addresses
    seen = set()

    def add(kind, tensor):
        tensor = getattr(tensor, "_local_tensor", tensor)  # DTensor
        if not isinstance(tensor, _torch.Tensor) or not tensor.is_cuda or len(seen) >= MOST_TENSORS:
            return
        try:
            address = tensor.untyped_storage().data_ptr()
        except Exception:  # subclasses without a storage of their own
            return
        if address and address not in seen:
            seen.add(address)
            found.setdefault(tensor.device.index, {}).setdefault(kind, []).append(address)

    for group in optimizer.param_groups:
        for parameter in group["params"]:
            add("parameter", parameter)
            add("gradient", parameter.grad)
    for root in roots():
        for parameter in root.parameters():
            add("parameter", parameter)
            add("gradient", parameter.grad)
        for buffer in root.buffers():
            add("buffer", buffer)
    for state in optimizer.state.values():
        for value in state.values() if isinstance(state, dict) else ():
            for tensor in value if isinstance(value, (list, tuple)) else (value,):
                add("state", tensor)
    for device, kinds in found.items():
        record.write("tensors", n=step, device=device, **kinds)
    if len(seen) >= MOST_TENSORS:
        record.note("events", "only the first %d tensors were listed: what the others belong to is not known" % MOST_TENSORS)
