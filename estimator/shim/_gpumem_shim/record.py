# SPDX-License-Identifier: Apache-2.0
# Lines of process-<pid>.jsonl, each written at once: a process may end by _exit or SIGKILL at any moment.
import json
import os
import time

_directory = os.environ.get("GPUMEM_RECORD", "")
_file = -1
_pid = 0
_started = time.time()


def write(event, **fields):
    """Appends one event. Never raises: a full disk must not end the user's program."""
    global _file, _pid
    try:
        if not _directory:
            return
        if _pid != os.getpid():  # first event, or a child after fork()
            _pid = os.getpid()
            path = os.path.join(_directory, "process-%d.jsonl" % _pid)
            _file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o600)
        line = {"event": event, "t": round(time.time() - _started, 3)}
        line.update(fields)
        os.write(_file, (json.dumps(line, default=str) + "\n").encode("utf-8", "replace"))
    except Exception:
        pass


def note(kind, text, **fields):
    """Something shortened or guessed: kind is a word for programs, text a sentence for people."""
    write("note", kind=kind, text=text, **fields)


def directory():
    return _directory


def setting(name, default):
    """An integer from the environment; what is not a number counts as not set."""
    try:
        return int(os.environ.get(name, default))
    except ValueError:
        return default
