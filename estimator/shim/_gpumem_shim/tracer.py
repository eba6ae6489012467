# SPDX-License-Identifier: Apache-2.0
# Loads the compiled tracer (estimator/tracer) and has every thread of the program followed by it.
import json
import os

from . import record

_library = None


def start(torch):
    """Returns "active", or "absent: " and why."""
    global _library
    path, why = _find()
    if not path:
        return "absent: " + why
    try:
        import ctypes

        library = ctypes.CDLL(path)
        library.gpumem_tracer_guesses.restype = ctypes.c_size_t
        if library.gpumem_tracer_start():
            record.note("tracer", "values inside Python's dispatch modes and tensor subclasses are not followed: this PyTorch calls them in another way")
        library.gpumem_tracer_follow()
        _library = library
        _follow_threads()
        _let_through(torch, library.gpumem_tracer_key())
    except Exception as error:
        return "absent: %s" % error
    try:
        # The allocator exists only once CUDA is initialised.
        torch.cuda._lazy_call(_record_allocator)
    except Exception as error:
        record.note("events", "allocator events are not recorded: %s" % error)
    return "active"


def _find():
    """The compiled tracer's path and "", or "" and why there is none."""
    path = os.environ.get("GPUMEM_TRACER", "")
    if path:
        return path, ""
    path, why = compiled("GPUMEM_TRACER is not set")
    if path:
        os.environ["GPUMEM_TRACER"] = path  # for the Pythons that this one starts
    return path, why


def compiled(without, *options):
    """What gpumem-tracer has, or makes, for this Python: its path and "", or "" and why not; `without`: why, where there is no gpumem-tracer."""
    program, cache = os.environ.get("GPUMEM_SHIM_TRACER_PROGRAM", ""), os.environ.get("GPUMEM_SHIM_TRACER_CACHE", "")
    if not program or not cache:
        return "", without
    import subprocess
    import sys

    try:
        found = subprocess.run(
            [program, *options, "--cache", cache, sys.executable],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, timeout=300,
        )
    except Exception as error:
        return "", str(error)
    path = found.stdout.strip()
    if found.returncode != 0 or not path:
        return "", (found.stderr.strip().splitlines() or ["gpumem-tracer failed"])[-1]
    return path, ""


def _follow_threads():
    # The dispatcher's keys are a thread's own; autograd hands them on to its threads, Python does not.
    import threading

    original = threading.Thread._bootstrap_inner

    def _bootstrap_inner(self):
        _library.gpumem_tracer_follow()
        original(self)

    threading.Thread._bootstrap_inner = _bootstrap_inner


def _let_through(torch, key_number):
    # Higher-order operators (torch.compile, flex_attention) look their keys up in Python and know no boxed fallback.
    try:
        key = torch._C.DispatchKey(key_number)
        ops = torch._ops
        later = getattr(ops, "_HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS", None)
        if later is not None:
            later.append(key)
        else:  # before 2.2
            original = ops.HigherOrderOperator.__init__

            def __init__(self, *arguments, **options):
                original(self, *arguments, **options)
                self.fallthrough(key)

            ops.HigherOrderOperator.__init__ = __init__
        for known in (ops._higher_order_ops, getattr(ops, "_global_higher_order_ops", {})):
            for op in list(known.values()):
                op.fallthrough(key)
    except Exception as error:
        record.note("tracer", "higher-order operators may fail with the tracer: %s" % error)


def _record_allocator():
    import ctypes

    # A program may set them itself, up to here: the allocator has just read them.
    record.write("allocator", cuda_alloc_conf=os.environ.get("PYTORCH_CUDA_ALLOC_CONF"), alloc_conf=os.environ.get("PYTORCH_ALLOC_CONF"))
    try:
        why = ctypes.create_string_buffer(512)
        if _library.gpumem_tracer_record(record.directory().encode(), why, len(why)):
            record.note("events", "allocator events are not recorded: %s" % why.value.decode("utf-8", "replace"))
    except Exception as error:
        record.note("events", "allocator events are not recorded: %s" % error)


def follows():
    return _library is not None


def enter_module(number):
    """This thread runs the forward of that module now; returns the number of the one before."""
    return _library.gpumem_tracer_module(number)


def mark_step(number):
    if _library is not None:
        import ctypes

        _library.gpumem_tracer_mark_step(ctypes.c_uint64(number))


def mark_batch(number):
    if _library is not None:
        import ctypes

        _library.gpumem_tracer_mark_batch(ctypes.c_uint64(number))


def write_events():
    if _library is not None:
        _library.gpumem_tracer_write_events()


def guesses():
    """A list of {"op", "kind", "count"}: kind is "size", "scalar", "finite" or "host"."""
    if _library is None:
        return []
    import ctypes

    size = 1 << 16
    while True:
        text = ctypes.create_string_buffer(size)
        needed = _library.gpumem_tracer_guesses(text, ctypes.c_size_t(size))
        if needed <= size:
            return json.loads(text.value.decode())
        size = needed + 1024


def active():
    return _library is not None


def state_of(storage):
    """What is known of a storage's bytes, as storage_states.h numbers it. `storage`: the address of its StorageImpl."""
    import ctypes

    return _library.gpumem_tracer_state(ctypes.c_void_p(storage))


def set_state(storage, state):
    import ctypes

    _library.gpumem_tracer_set_state(ctypes.c_void_p(storage), state)


def any_lazy():
    return _library is not None and _library.gpumem_tracer_lazy()


def compute(address):
    """The CPU storage at that address is about to be read."""
    import ctypes

    _library.gpumem_tracer_compute(ctypes.c_void_p(address))


def write_sparse(file, address, size):
    import ctypes

    error = _library.gpumem_tracer_write(file, ctypes.c_void_p(address), ctypes.c_size_t(size))
    if error:
        raise OSError(error, os.strerror(error))


def mapped(address, size, file):
    """A file is mapped there; the descriptor is the tracer's from now on."""
    import ctypes

    _library.gpumem_tracer_mapped(ctypes.c_void_p(address), ctypes.c_size_t(size), file)
