# SPDX-License-Identifier: Apache-2.0
# xMem's method: the program really trains a few iterations on the CPU (redirect) while the compiled recorder writes down what it
# allocates; the marks that only Python can set come from here. Runs in the job's Python; estimator/xmem makes the estimate.
import importlib
import os
import sys

from . import ending, record, redirect, tracer

# The first iteration warms up (optimizer state is made, buffers are cached), the second and the third are what is replayed.
ITERATIONS = 3

(MODULE_BEGIN, MODULE_END, ITERATION, ZERO_GRAD_BEGIN, ZERO_GRAD_END, STEP_BEGIN, STEP_END, PARAMETER, DATA,
 TRANSFORMER) = range(5, 15)

_library = None
_mark = None
_torch = None
_numbers = {}            # id(module) -> its number; modules are kept alive, so that an id stays theirs
_kept = []
_depth = 0
_storages = set()        # of parameters and buffers that have been recorded
_iterations = 0
_steps = 0
_due = True              # an iteration begins at the next sign of one
_loader_seen = False
_in_apply = 0
_done = False


def start(torch):
    """Returns "active", or "absent: " and why."""
    global _library, _mark, _torch
    _torch = torch
    path, why = tracer.compiled("GPUMEM_SHIM_TRACER_PROGRAM is not set", "--recorder")
    if not path:
        return "absent: " + why
    try:
        import ctypes

        library = ctypes.CDLL(path)
        text = ctypes.create_string_buffer(512)
        target = os.path.join(record.directory(), "sequence-%d.bin" % os.getpid())
        if library.gpumem_recorder_start(target.encode(), text, ctypes.c_size_t(len(text))):
            return "absent: " + text.value.decode("utf-8", "replace")
        library.gpumem_recorder_mark.argtypes = (ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64)
        library.gpumem_recorder_mark.restype = None
        _library, _mark = library, library.gpumem_recorder_mark
        redirect.start(torch, _on_data)
        _hook_modules(torch)
        _hook_losses()
        _hook_loaders(torch)
        _hook_optimizers()
        _hook_threads()
    except Exception as error:
        return "absent: %s: %s" % (type(error).__name__, error)
    ending.follow(lambda: (_steps, {}) if _close() else None)
    return "active"


def _number(module):
    number = _numbers.get(id(module))
    if number is None:
        number = _numbers[id(module)] = len(_numbers) + 1
        _kept.append(module)
    return number


def _is_loss(name):
    name = name.lower()
    return 1 if "loss" in name or "cross" in name else 0


def _hook_modules(torch):
    from torch.nn.modules import module as modules

    original_apply = modules.Module._apply

    def _apply(self, *arguments, **named):
        global _in_apply
        _in_apply += 1
        try:
            return original_apply(self, *arguments, **named)
        finally:
            _in_apply -= 1

    modules.Module._apply = _apply

    # Around the call as a whole, as the profiler sees a module: its hooks are in it.
    original_call = modules.Module.__call__

    def __call__(self, *arguments, **named):
        global _depth
        if _done:
            return original_call(self, *arguments, **named)
        if _depth == 0:
            _root(self)
        number = _number(self)
        _mark(MODULE_BEGIN, number, _is_loss(type(self).__name__))
        _depth += 1
        try:
            return original_call(self, *arguments, **named)
        finally:
            _depth -= 1
            _mark(MODULE_END, number, 0)

    modules.Module.__call__ = __call__


def _root(module):
    if _due and not _loader_seen:
        _begin_iteration()
    known = sys.modules.get("transformers.modeling_utils")
    if known is not None and isinstance(module, known.PreTrainedModel):
        _mark(TRANSFORMER, 0, 0)
    for parameter in module.parameters():
        _persistent(parameter, 0)
    for buffer in module.buffers():
        _persistent(buffer, 1)


def _persistent(tensor, buffer):
    try:
        key = tensor.untyped_storage().data_ptr()
        size = tensor.untyped_storage().nbytes()
    except Exception:
        return
    if size and key not in _storages:
        _storages.add(key)
        _mark(PARAMETER, size, buffer)


def _hook_losses():
    # transformers computes a model's loss in functions of one module: they count as layers.
    from . import imports

    imports.after("transformers.loss.loss_utils", "_gpumem_shim.xmem", "wrap_losses")


def wrap_losses(module):
    import functools
    import inspect

    def as_layer(function, number):
        @functools.wraps(function)
        def layer(*arguments, **named):
            _mark(MODULE_BEGIN, number, _is_loss(function.__name__))
            try:
                return function(*arguments, **named)
            finally:
                _mark(MODULE_END, number, 0)

        return layer

    wrapped = {}
    for name, function in list(vars(module).items()):
        if inspect.isfunction(function) and function.__module__ == module.__name__:
            wrapped[function] = as_layer(function, _number(function))
            setattr(module, name, wrapped[function])
    for table in vars(module).values():
        if isinstance(table, dict):
            for key, function in list(table.items()):
                try:
                    if function in wrapped:
                        table[key] = wrapped[function]
                except TypeError:
                    pass


def _hook_loaders(torch):
    from torch.utils.data import dataloader

    original = dataloader._BaseDataLoaderIter.__next__

    def __next__(self):
        global _loader_seen
        batch = original(self)
        if torch.utils.data.get_worker_info() is None:
            _loader_seen = True
            if _due:
                _begin_iteration()
        return batch

    dataloader._BaseDataLoaderIter.__next__ = __next__


def _begin_iteration():
    global _iterations, _due
    if _iterations == ITERATIONS:
        _end()
        return
    _mark(ITERATION, _iterations, 0)
    _iterations += 1
    _due = False


def _on_data(tensor):
    if _in_apply:
        return
    if _due and not _loader_seen:
        _begin_iteration()
    try:
        _mark(DATA, tensor.numel() * tensor.element_size(), 0)
    except Exception:  # sparse, nested
        pass


def _hook_optimizers():
    optimizers = importlib.import_module("torch.optim.optimizer")
    optimizers.register_optimizer_step_pre_hook(_before_step)
    optimizers.register_optimizer_step_post_hook(_after_step)
    original = optimizers.Optimizer.zero_grad

    def zero_grad(self, *arguments, **named):
        _mark(ZERO_GRAD_BEGIN, 0, 0)
        try:
            return original(self, *arguments, **named)
        finally:
            _mark(ZERO_GRAD_END, 0, 0)

    optimizers.Optimizer.zero_grad = zero_grad


def _before_step(optimizer, arguments, named):
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            _persistent(parameter, 0)
    _mark(STEP_BEGIN, 0, 0)


def _after_step(optimizer, arguments, named):
    global _steps, _due
    _mark(STEP_END, 0, 0)
    _steps += 1
    _due = True
    if _steps <= ITERATIONS + 1:
        record.write("step", n=_steps, devices={})


def _hook_threads():
    import threading

    original = threading.Thread._bootstrap_inner

    def _bootstrap_inner(self):
        try:
            _library.gpumem_recorder_follow()
            redirect.follow()
        except Exception:
            pass
        original(self)

    threading.Thread._bootstrap_inner = _bootstrap_inner


def _close():
    global _done
    if _done:
        return False
    _done = True
    if _library.gpumem_recorder_stop():
        record.note("recorder", "the sequence of allocations is incomplete: it could not be written")
    for sentence in redirect.notes():
        record.note("redirect", sentence)
    return True


def _end():
    if _close() and record.setting("GPUMEM_SHIM_STOP", 1):
        ending.end(_steps, {})
