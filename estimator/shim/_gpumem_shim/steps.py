# SPDX-License-Identifier: Apache-2.0
# Counts optimizer steps, follows the peaks of PyTorch's allocator and ends the program once they have been stable.
# How it ends: ending.py.
import importlib
import os

from . import attribution, ending, loader, phases, ranks, record, tracer

# A peak counts as risen when it has grown by this much since it last did: a list of losses must not look like a growing model.
RISE_BYTES = 1 << 20
# Every step is written up to this one, then powers of two and those that bring a new peak.
ALL_STEPS = 64
# A program that never ends the epoch that was shortened for it, or that may begin more than it does (phases.py), is ended after this
# many times the stable steps.
PATIENCE = 8
# A program without an optimizer (inference, steps of its own making) is ended after this many times the stable steps, in calls of its
# models. Peaks are read at every eighth of them.
CALLS_PATIENCE, LOOK_EVERY = 32, 8

_torch = None
_steps = 0            # iterations: an optimizer that steps twice begins a new one, so GANs count once
_stepped = set()      # optimizers that have stepped in this iteration
_last_rise = 0
_calls = 0            # of models, by the program itself, while no optimizer has stepped
_last_rise_call = 0
_will_step = False    # it has an optimizer
_peaks = {}           # device -> [allocated, reserved] seen at most, also before a reset by the program
_at_rise = {}         # device -> the same, when they last counted as risen


def start(torch):
    global _torch
    _torch = torch
    _hook_steps()
    _keep_peaks("_cuda_resetPeakMemoryStats")
    _keep_peaks("_accelerator_resetPeakStats")
    attribution.root_called = _called
    ending.follow(lambda: (_steps, _look()))
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_forget)


def _hook_steps():
    # torch.optim hides this module's name from its namespace.
    optimizer = importlib.import_module("torch.optim.optimizer")
    phases.start(optimizer.Optimizer)
    register = getattr(optimizer, "register_optimizer_step_post_hook", None)
    if register is not None:
        register(lambda opt, args, kwargs: _after_step(opt))
        return
    original = optimizer.Optimizer.__init__

    def __init__(self, *args, **kwargs):  # torch before 2.0: step is wrapped for each optimizer that is made
        original(self, *args, **kwargs)
        step = self.step

        def stepped(*a, **k):
            result = step(*a, **k)
            _after_step(self)
            return result

        self.step = stepped

    optimizer.Optimizer.__init__ = __init__


def _keep_peaks(name):
    original = getattr(_torch._C, name, None)
    if original is None:
        return

    def reset(*args, **kwargs):
        _look()
        return original(*args, **kwargs)

    setattr(_torch._C, name, reset)


def _look():
    """Reads the allocator's figures of every device. Returns the event's "devices"."""
    devices = {}
    try:
        if not _torch.cuda.is_initialized():
            return devices
        for device in range(_torch.cuda.device_count()):
            stats = _torch._C._cuda_memoryStats(device)
            allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
            best = _peaks.setdefault(device, [0, 0])
            best[0] = max(best[0], allocated["peak"])
            best[1] = max(best[1], reserved["peak"])
            if best[1]:
                devices[str(device)] = {
                    "allocated": allocated["current"],
                    "reserved": reserved["current"],
                    "peak_allocated": best[0],
                    "peak_reserved": best[1],
                }
    except Exception:
        pass
    return devices


def _after_step(optimizer):
    try:
        _step(optimizer)
    except Exception as error:
        record.note("shim", "a step was not recorded: %s" % error)


def _step(optimizer):
    global _steps, _last_rise
    if not _stepped or id(optimizer) in _stepped:
        _stepped.clear()
        _steps += 1
    _stepped.add(id(optimizer))
    phases.stepped(optimizer)
    loader.stepped()
    devices = _look()
    risen = _count_rises()
    if risen:
        _last_rise = _steps
    attribution.after_step(optimizer, _steps, risen)
    if risen or _steps <= ALL_STEPS or _steps & (_steps - 1) == 0:
        record.write("step", n=_steps, devices=devices)
        tracer.mark_step(_steps)
    ready = not risen and _may_end()
    if ranks.after_step(_steps, ready) if ranks.together() else ready:
        ending.end(_steps, devices)


def _called():
    """The program calls a model."""
    global _calls, _last_rise_call, _will_step
    if _steps or _will_step or ranks.together():
        return
    _calls += 1
    if _calls % LOOK_EVERY:
        return
    devices = _look()
    if _count_rises():
        _last_rise_call = _calls
    stable = record.setting("GPUMEM_SHIM_STABLE_STEPS", 8)
    if _calls - _last_rise_call < CALLS_PATIENCE * stable or not _may_stop(stable):
        return
    # What has made an optimizer will step: it accumulates gradients, or plays first.
    _will_step = phases.has_optimizer()
    if not _will_step:
        record.note("calls", "no optimizer has stepped: ended after %d calls of the program's models, when the peak had been stable" % _calls, count=_calls)
        ending.end(0, devices)


def _count_rises():
    risen = False
    for device, best in _peaks.items():
        before = _at_rise.get(device)
        if before is None or best[0] > before[0] + RISE_BYTES or best[1] > before[1] + RISE_BYTES:
            _at_rise[device] = list(best)
            risen = risen or best[1] > 0
    return risen


def _may_stop(stable):
    return record.setting("GPUMEM_SHIM_STOP", 1) and stable > 0 and any(best[1] for best in _peaks.values())


def _may_end():
    stable = record.setting("GPUMEM_SHIM_STABLE_STEPS", 8)
    if not _may_stop(stable):
        return False
    quiet = _steps - _last_rise
    if quiet >= PATIENCE * stable:
        return True
    return quiet >= stable and loader.whole_epoch_seen() and not phases.may_begin(_last_rise)


def _forget():
    """A forked child begins its own account."""
    global _steps, _last_rise, _calls, _last_rise_call, _will_step
    _steps = _last_rise = _calls = _last_rise_call = 0
    _will_step = False
    _stepped.clear()
    _peaks.clear()
    _at_rise.clear()
    phases.forget()
    ranks.forget()
    ending.forget()
