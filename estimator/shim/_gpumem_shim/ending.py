# SPDX-License-Identifier: Apache-2.0
# How a followed process ends, in both methods: by itself, by an exception, or by us once enough was seen. The last lines of its
# record are written here, once.
import atexit
import os
import sys

from . import batches, loader, phases, ranks, record, snapshot, tracer

_error = None
_ended = False


def follow(state):
    """Sees to it that the record gets its last lines. `state()`: (iterations, devices as a step's event has them), or None where
    they are written already."""
    _hook_exceptions()
    atexit.register(_at_exit, state)


def end(count, devices):
    """Ends this process with status 0. Exit handlers of the program do not run: they may wait for what never comes
    (uploads, other ranks); what it has printed is flushed, its worker processes are ended."""
    _finish("stable", count, devices, status=0)
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


def give_up(why):
    """Ends the program with status 1: what it would do now is of no use to an estimate."""
    record.write("stop", reason="exception", n=0, devices={}, status=1, error=why)
    os._exit(1)


def forget():
    """A forked child ends for itself."""
    global _ended
    _ended = False


def _finish(reason, count, devices, **fields):
    global _ended
    if _ended:
        return
    _ended = True
    for guess in tracer.guesses():
        record.note("guess-" + guess["kind"], _sentence(guess), op=guess["op"], count=guess["count"])
    loader.write_notes()
    batches.write_notes()
    if reason == "stable":
        phases.write_notes()
    snapshot.write()
    tracer.write_events()
    record.write("stop", reason=reason, n=count, devices=devices, **fields)


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
            _error = _text(kind, value)
        original(kind, value, traceback)

    sys.excepthook = excepthook


def _text(kind, value):
    return ("%s: %s" % (kind.__name__, value))[:600]


def _at_exit(state):
    try:
        ranks.ended(wait=False)
        error = _error
        if error is None and getattr(sys, "last_value", None) is not None:
            error = _text(type(sys.last_value), sys.last_value)
        last = state()
        if last is None:
            return
        if error is None:
            _finish("exit", *last)
        else:
            _finish("exception", *last, status=1, error=error)
    except Exception:
        pass
