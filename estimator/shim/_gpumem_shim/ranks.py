# SPDX-License-Identifier: Apache-2.0
# Which ranks of a distributed program are here, and the end of all of them at the same optimizer step.
import mmap
import os
import struct
import sys
import time

# What launchers and Slurm call a rank.
_RANK_NAMES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID", "LOCAL_RANK")
# Ranks that a launcher starts one after another are waited for as long as this, once one of them was seen.
_START_SECONDS = 3.0
# At the end, others are given this long to reach theirs.
_END_SECONDS = 10.0

_WORD = struct.Struct("q")
_PER_RANK = 3  # words: step, ready, ended

_file = -1
_map = None
_rank = _world = 0


def all_here(world):
    """True if all of the world's ranks are processes of this probe; False: the others are missing."""
    if os.environ.get("GPUMEM_ALONE", "0") not in ("", "0"):
        return False
    began = time.monotonic()
    while True:
        found = max(_count_by_environment(), _count_siblings())
        if found >= world or found <= 1 or time.monotonic() - began > _START_SECONDS:
            return _agreed(found >= world, world)
        time.sleep(0.1)


def _agreed(here, world):
    """What the first of these ranks has found holds for all: one that waits for ranks that believe to be alone waits for ever."""
    path = _shared_file("found", world)
    mine = "%s.%d" % (path, os.getpid())
    try:
        with open(mine, "w") as file:
            file.write("here" if here else "alone")
        try:
            os.link(mine, path)  # whole, or not at all
        except FileExistsError:
            with open(path) as file:
                here = file.read() == "here"
        os.unlink(mine)
    except OSError:
        pass
    return here


def _shared_file(what, world):
    return os.path.join(os.environ.get("GPUMEM_RECORD", ""), "ranks-%s-%d-%s" % (what, world, os.environ.get("MASTER_PORT", "")))


def _count_by_environment():
    """Processes of this probe that differ in a rank: the most different values that any of the names has."""
    ours = {name: os.environ.get(name) for name in _RANK_NAMES + ("MASTER_PORT", "GPUMEM_RECORD")}
    values = {name: {ours[name]} for name in _RANK_NAMES if ours[name] is not None}
    for pid in _pids():
        try:
            with open("/proc/%d/environ" % pid, "rb") as file:
                theirs = dict(entry.split(b"=", 1) for entry in file.read().split(b"\0") if b"=" in entry)
        except (OSError, ValueError):
            continue
        theirs = {os.fsdecode(name): os.fsdecode(value) for name, value in theirs.items()}
        if theirs.get("GPUMEM_RECORD") != ours["GPUMEM_RECORD"]:
            continue
        if theirs.get("MASTER_PORT") and ours["MASTER_PORT"] and theirs["MASTER_PORT"] != ours["MASTER_PORT"]:
            continue
        # Who starts more of itself (Lightning) is a rank too, and has not said so in the environment that it was started with.
        launcher = pid == os.getppid() and _command_line(pid).split(b"\0")[1:] == _command_line(os.getpid()).split(b"\0")[1:]
        for name, seen in values.items():
            if theirs.get(name) is not None or launcher:
                seen.add(theirs.get(name))
    return max([len(seen) for seen in values.values()] or [1])


def _count_siblings():
    """Processes that multiprocessing started beside this one (torch.multiprocessing.spawn)."""
    process = getattr(sys.modules.get("multiprocessing"), "parent_process", lambda: None)()
    if process is None:
        return 1
    count, mine = 0, _command_line(os.getpid())
    for pid in _pids():
        try:
            with open("/proc/%d/stat" % pid) as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        if parent == os.getppid():
            line = _command_line(pid)
            count += line == mine or b"spawn_main" in line
    return max(count, 1)


def _pids():
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _command_line(pid):
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            return file.read()
    except OSError:
        return b""


def begin(rank, world):
    """This process is one of several local ranks. They share a file beside the record."""
    global _file, _map, _rank, _world
    if _map is not None or world < 2 or not 0 <= rank < world:
        return
    path = _shared_file("steps", world)
    size = _WORD.size * (1 + _PER_RANK * world)
    _file = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
    os.ftruncate(_file, size)
    _map = mmap.mmap(_file, size)
    _rank, _world = rank, world


def together():
    return _map is not None


def after_step(step, ready):
    """Tells the other ranks; True once all are to end, which is after the same step for each of them."""
    import fcntl

    fcntl.lockf(_file, fcntl.LOCK_EX)
    try:
        _put(_rank, 0, step)
        _put(_rank, 1, int(ready))
        stop = _get_word(0)
        # Who has ended by itself keeps nobody here.
        if not stop and all(_get(rank, 1) or _get(rank, 2) for rank in range(_world)):
            stop = max(_get(rank, 0) for rank in range(_world)) + 1
            _put_word(0, stop)
    finally:
        fcntl.lockf(_file, fcntl.LOCK_UN)
    return bool(stop) and step >= stop


def ended(wait):
    """This rank is at its end; with `wait`, not before the others are (rank 0 may serve their store)."""
    if _map is None:
        return
    _put(_rank, 2, 1)
    began = time.monotonic()
    while wait and time.monotonic() - began < _END_SECONDS and not all(_get(rank, 2) for rank in range(_world)):
        time.sleep(0.01)


def forget():
    """In a forked child, which is no rank."""
    global _map
    _map = None


def _get_word(index):
    return _WORD.unpack_from(_map, index * _WORD.size)[0]


def _put_word(index, value):
    _WORD.pack_into(_map, index * _WORD.size, value)


def _get(rank, word):
    return _get_word(1 + rank * _PER_RANK + word)


def _put(rank, word, value):
    _put_word(1 + rank * _PER_RANK + word, value)
