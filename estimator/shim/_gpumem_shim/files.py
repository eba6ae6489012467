# SPDX-License-Identifier: Apache-2.0
# Files that the program opens for reading: gpumemd answers a repeated submission from this probe only while they are unchanged.
# Seen by an audit hook from the interpreter's start, written once torch is there. Modules count by their source. Installed
# packages are left out: torch's version file stands for its environment.
import os
import sys

_MOST = 1000
_OUTSIDE = ("/proc/", "/sys/", "/dev/")
_PACKAGES = ("/site-packages/", "/dist-packages/")

_seen = {}  # in order
_write = None
_pid = 0
_library = os.path.dirname(os.__file__) + os.sep
_ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_record = os.environ.get("GPUMEM_RECORD", "") + os.sep


def watch():
    sys.addaudithook(_audit)


def start(torch, write):
    global _write, _pid
    _pid = os.getpid()
    version = getattr(sys.modules.get("torch.version"), "__file__", None)
    if version:
        _seen[version] = True
    for path in list(_seen):
        write("file", path=path)
    _write = write


def _audit(event, arguments):
    try:
        if event == "open":
            path, _, flags = arguments
            if isinstance(path, int) or (flags or 0) & (os.O_WRONLY | os.O_RDWR):
                return
        elif event == "cpython.run_file":
            path = arguments[0]
        else:
            return
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        path = os.path.abspath(path)
        if path in _seen or len(_seen) >= _MOST or path.startswith(_OUTSIDE + (_library, _ours, _record)):
            return
        if any(part in path for part in _PACKAGES):
            return
        folder, name = os.path.split(path)
        if name.endswith(".pyc") and folder.endswith("__pycache__"):
            path = os.path.join(os.path.dirname(folder), name.split(".")[0] + ".py")
            if path in _seen:
                return
        _seen[path] = True
        # A forked worker has no record of its own.
        if _write is not None and os.getpid() == _pid:
            _write("file", path=path)
    except Exception:  # An audit hook that raises would fail the program's open().
        pass
