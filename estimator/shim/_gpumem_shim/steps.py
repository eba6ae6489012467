# SPDX-License-Identifier: Apache-2.0
# Counts optimizer steps, follows the peaks of PyTorch's allocator and ends the program once they have been stable.
import atexit
import importlib
import os
import sys

from . import attribution, batches, loader, ranks, record, snapshot, tracer

# A peak counts as risen when it has grown by this much since it last did: a list of losses must not look like a growing model.
RISE_BYTES = 1 << 20
# Every step is written up to this one, then powers of two and those that bring a new peak.
ALL_STEPS = 64
# A program that never ends the epoch that was shortened for it is ended after this many times the stable steps.
PATIENCE = 8

_torch = None
_steps = 0            # iterations: an optimizer that steps twice begins a new one, so GANs count once
_stepped = set()      # optimizers that have stepped in this iteration
_last_rise = 0
_peaks = {}           # device -> [allocated, reserved] seen at most, also before a reset by the program
_at_rise = {}         # device -> the same, when they last counted as risen
_error = None
_ended = False


def start(torch):
    global _torch
    _torch = torch
    _hook_steps()
    _keep_peaks("_cuda_resetPeakMemoryStats")
    _keep_peaks("_accelerator_resetPeakStats")
    _hook_exceptions()
    atexit.register(_at_exit)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_forget)


def _hook_steps():
    # torch.optim hides this module's name from its namespace.
    optimizer = importlib.import_module("torch.optim.optimizer")
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
        end(devices)


def _count_rises():
    risen = False
    for device, best in _peaks.items():
        before = _at_rise.get(device)
        if before is None or best[0] > before[0] + RISE_BYTES or best[1] > before[1] + RISE_BYTES:
            _at_rise[device] = list(best)
            risen = risen or best[1] > 0
    return risen


def _may_end():
    stable = record.setting("GPUMEM_SHIM_STABLE_STEPS", 8)
    if not record.setting("GPUMEM_SHIM_STOP", 1) or stable <= 0 or not _peaks or not any(best[1] for best in _peaks.values()):
        return False
    quiet = _steps - _last_rise
    return quiet >= stable and (loader.whole_epoch_seen() or quiet >= PATIENCE * stable)


def end(devices):
    """Ends this process with status 0. Exit handlers of the program do not run: they may wait for what never comes
    (uploads, other ranks); what it has printed is flushed, its worker processes are ended."""
    _finish("stable", devices, status=0)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass
    try:
        if "multiprocessing" in sys.modules:
            for child in sys.modules["multiprocessing"].active_children():
                child.terminate()
    except Exception:
        pass
    try:
        ranks.ended(wait=True)
    except Exception:
        pass
    os._exit(0)


def _finish(reason, devices, **fields):
    global _ended
    if _ended:
        return
    _ended = True
    for guess in tracer.guesses():
        record.note("guess-" + guess["kind"], _sentence(guess), op=guess["op"], count=guess["count"])
    loader.write_notes()
    batches.write_notes()
    snapshot.write()
    tracer.write_events()
    record.write("stop", reason=reason, n=_steps, devices=devices, **fields)


def _sentence(guess):
    what = {
        "size": "the size of a result that depends on values was taken as large as it can be",
        "scalar": "a value that the program read was taken as a healthy one",
        "finite": "gradients were taken as finite",
        "host": "values of large tensors on the CPU that nobody had computed were taken as random or healthy ones",
    }[guess["kind"]]
    return "%s (%s, %d times)" % (what, guess["op"], guess["count"])


def _hook_exceptions():
    original = sys.excepthook

    def excepthook(kind, value, traceback):
        global _error
        if _error is None:
            _error = ("%s: %s" % (kind.__name__, value))[:600]
        original(kind, value, traceback)

    sys.excepthook = excepthook


def _at_exit():
    try:
        ranks.ended(wait=False)
        error = _error
        if error is None and getattr(sys, "last_value", None) is not None:
            error = ("%s: %s" % (type(sys.last_value).__name__, sys.last_value))[:600]
        if error is None:
            _finish("exit", _look())
        else:
            _finish("exception", _look(), status=1, error=error)
    except Exception:
        pass


def _forget():
    """A forked child begins its own account."""
    global _steps, _last_rise, _ended
    _steps = _last_rise = 0
    _ended = False
    _stepped.clear()
    _peaks.clear()
    _at_rise.clear()
    ranks.forget()
