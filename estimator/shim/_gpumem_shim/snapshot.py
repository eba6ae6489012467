# SPDX-License-Identifier: Apache-2.0
# `gpumem estimate --snapshot`: PyTorch's own memory history, with the program's stack traces, written when the process ends.
# The file opens in pytorch.org/memory_viz.
import os

from . import record

# Events that are kept: PyTorch keeps the latest. At 64 bytes and a shared stack each, some hundred MiB at most.
MOST_EVENTS = 1000000

_torch = None
_path = ""


def start(torch):
    global _torch, _path
    if not record.setting("GPUMEM_SHIM_SNAPSHOT", 0):
        return
    _torch = torch
    _path = os.path.join(record.directory(), "snapshot-%d.pickle" % os.getpid())
    torch.cuda._lazy_call(_begin)


def _begin():
    try:
        _torch.cuda.memory._record_memory_history(enabled="all", context="all", stacks="python", max_entries=MOST_EVENTS)
    except Exception as error:
        record.note("snapshot", "this PyTorch keeps no memory history, so there is no snapshot: %s" % error)


def write():
    """At the end of the process, however it ends in Python."""
    if not _path or not _torch.cuda.is_initialized() or _path.rsplit("-", 1)[1] != "%d.pickle" % os.getpid():
        return
    try:
        _torch.cuda.memory._dump_snapshot(_path)
    except Exception as error:
        record.note("snapshot", "the snapshot could not be written: %s" % error)
