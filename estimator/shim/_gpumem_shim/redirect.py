# SPDX-License-Identifier: Apache-2.0
# For xMem's method: the program's requests for a CUDA device are answered by the CPU, so that an ordinary script really trains
# there, whatever build of PyTorch it has. Runs in the job's Python. What is redirected and what is not: doc/contracts.md,
# "Method xmem". Every function here that replaces one of PyTorch's is named as that is.
import contextlib
import os
import sys
import types

_torch = None
_cpu = None
_on_data = None          # called with each tensor that the program moves to the device
_what = {"name": "NVIDIA GPU", "memory": 0, "count": 1, "capability": (8, 0), "processors": 1}
_rewritten = set()       # things that were replaced by something simpler: for the notes


def start(torch, on_data):
    """Everything from here on that asks for "cuda" gets the CPU. `torch` is the package."""
    global _torch, _cpu, _on_data
    _torch, _on_data = torch, on_data
    _cpu = torch.device("cpu")
    _read_gpu()
    _replace_cuda(torch)
    _replace_mixed_precision(torch)
    _replace_elsewhere(torch)
    follow()


def notes():
    """Sentences on what the program asked for and did not get."""
    return sorted(_rewritten)


def follow():
    """Modes are a thread's own: to be called in each thread of the program."""
    _Mode().__enter__()


def _read_gpu():
    # NAME|BYTES|COUNT|MAJOR.MINOR|PROCESSORS, set by gpumem-probe
    fields = os.environ.get("GPUMEM_SHIM_GPU", "").split("|")
    if len(fields) < 5:
        return
    try:
        major, minor = fields[3].split(".")
        _what.update(name=fields[0], memory=int(fields[1]), count=int(fields[2]), capability=(int(major), int(minor)),
                     processors=int(fields[4]))
    except ValueError:
        pass


def _is_cuda(value):
    if isinstance(value, str):
        return value == "cuda" or value.startswith("cuda:")
    return isinstance(value, _torch.device) and value.type == "cuda"


def _moved(tensor):
    if _on_data is not None:
        _on_data(tensor)


# The class is made once torch is there: its base is torch's.
def _Mode():
    global _Mode
    torch = _torch
    to, cuda = torch.Tensor.to, torch.Tensor.cuda
    passed = {torch.Tensor.pin_memory, torch.Tensor.record_stream}

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            if func is cuda:
                _moved(args[0])
                return args[0]
            if func in passed:
                return args[0]
            if kwargs and _is_cuda(kwargs.get("device")):
                kwargs = dict(kwargs, device=_cpu)
                if func is to:
                    _moved(args[0])
            elif func is to and len(args) > 1:
                # Tensor.to(0) is a device, too
                if _is_cuda(args[1]) or (isinstance(args[1], int) and not isinstance(args[1], bool)):
                    args = (args[0], _cpu) + tuple(args[2:])
                    _moved(args[0])
            elif func is torch.Tensor.type and len(args) > 1 and isinstance(args[1], str):
                args = (args[0], args[1].replace("torch.cuda.", "torch.")) + tuple(args[2:])
            return func(*args, **kwargs)

    _Mode = Mode
    return Mode()


def _replace(owner, name, value):
    if hasattr(owner, name):
        setattr(owner, name, value)


def _answer(value):
    return lambda *arguments, **named: value


def _replace_cuda(torch):
    cuda = torch.cuda
    nothing = _answer(None)

    class Stream:
        device, stream_id, cuda_stream, priority = _cpu, 0, 0, 0

        def __init__(self, *arguments, **named):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *error):
            return False

        def query(self):
            return True

        def is_capturing(self):
            return False

        def record_event(self, event=None):
            return event or Event()

        synchronize = wait_event = wait_stream = nothing

    class Event(Stream):
        def elapsed_time(self, end):
            return 1.0

        record = wait = nothing

    # Old versions of TorchDynamo (2.3) ask whether they are of the abstract kinds.
    known = sys.modules.get("torch._streambase")
    for base, ours in (("_StreamBase", Stream), ("_EventBase", Event)):
        if hasattr(getattr(known, base, None), "register"):
            getattr(known, base).register(ours)

    class device(contextlib.ContextDecorator):
        def __init__(self, *arguments):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *error):
            return False

    properties = types.SimpleNamespace(
        name=_what["name"], total_memory=_what["memory"], major=_what["capability"][0], minor=_what["capability"][1],
        multi_processor_count=_what["processors"], is_integrated=0, is_multi_gpu_board=0, warp_size=32)
    counted = {"allocated_bytes.all.current": 0, "allocated_bytes.all.peak": 0, "reserved_bytes.all.current": 0, "reserved_bytes.all.peak": 0}
    answers = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "is_current_stream_capturing": lambda: False,
        "device_count": lambda: _what["count"],
        "current_device": _answer(0),
        "get_device_name": lambda *arguments: _what["name"],
        "get_device_capability": lambda *arguments: _what["capability"],
        "get_device_properties": lambda *arguments: properties,
        "get_arch_list": lambda: ["sm_%d%d" % _what["capability"]],
        "is_bf16_supported": lambda *arguments, **named: True,
        "mem_get_info": lambda *arguments: (_what["memory"], _what["memory"]),
        "memory_stats": lambda *arguments: dict(counted),
        "memory_summary": lambda *arguments, **named: "",
        "get_rng_state": lambda *arguments: torch.get_rng_state(),
        "get_rng_state_all": lambda *arguments: [torch.get_rng_state()],
        "initial_seed": lambda: torch.initial_seed(),
        "current_stream": lambda *arguments: Stream(),
        "default_stream": lambda *arguments: Stream(),
        "stream": lambda *arguments: Stream(),
        "Stream": Stream,
        "Event": Event,
        "device": device,
        "device_of": device,
    }
    for name, value in answers.items():
        _replace(cuda, name, value)
    # Each name gets a function of its own: TorchDynamo refuses two names for one object.
    for name in ("init", "_lazy_init", "_lazy_call", "set_device", "synchronize", "empty_cache", "ipc_collect", "manual_seed", "manual_seed_all",
                 "seed", "seed_all", "set_rng_state", "set_rng_state_all", "set_stream", "set_per_process_memory_fraction",
                 "reset_peak_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached", "reset_accumulated_memory_stats"):
        _replace(cuda, name, _answer(None))
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "memory_cached", "max_memory_cached",
                 "utilization", "temperature"):
        _replace(cuda, name, _answer(0))
    if hasattr(cuda, "nvtx"):
        for name in ("range_push", "range_pop", "range_start", "range_end", "mark"):
            _replace(cuda.nvtx, name, _answer(None))
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is not None:
        for name, value in (("is_available", lambda: True), ("device_count", lambda: _what["count"]), ("synchronize", _answer(None)),
                            ("current_accelerator", lambda *arguments, **named: torch.device("cuda")), ("current_device_index", _answer(0)),
                            ("set_device_index", _answer(None)), ("set_device_idx", _answer(None)), ("empty_cache", _answer(None)),
                            ("current_stream", lambda *arguments: Stream()), ("set_stream", _answer(None))):
            _replace(accelerator, name, value)


def _replace_mixed_precision(torch):
    autocast = torch.amp.autocast_mode.autocast
    original = autocast.__init__

    def __init__(self, device_type, dtype=None, enabled=True, cache_enabled=None):
        if device_type == "cuda":
            # The CPU's autocast knows bfloat16 everywhere; float16 has the same size.
            device_type = "cpu"
            if dtype is not torch.bfloat16:
                dtype = torch.bfloat16
                if enabled:
                    _rewritten.add("autocast to float16 ran as the CPU's autocast to bfloat16, which chooses its operators differently")
        original(self, device_type, dtype, enabled, cache_enabled)

    autocast.__init__ = __init__
    for owner in (getattr(torch.cuda.amp, "grad_scaler", None), getattr(torch.amp, "grad_scaler", None)):
        scaler = getattr(owner, "GradScaler", None)
        if scaler is None or "_gpumem" in scaler.__dict__:
            continue
        _without_scaling(scaler)


def _without_scaling(scaler):
    original = scaler.__init__

    def __init__(self, *arguments, **named):
        named["enabled"] = False
        original(self, *[argument for argument in arguments if isinstance(argument, str)][:1], **named)

    scaler.__init__ = __init__
    scaler._gpumem = True


def _replace_elsewhere(torch):
    load = torch.load

    def without_cuda(*arguments, **named):
        if "map_location" in named or len(arguments) > 1:
            arguments, named = arguments[:1] + arguments[2:], dict(named)
        return load(*arguments, **dict(named, map_location="cpu"))

    torch.load = without_cuda

    if hasattr(torch, "compile"):
        def compile(model=None, *arguments, **named):
            _rewritten.add("torch.compile was left out")
            return model if model is not None else (lambda function: function)

        torch.compile = compile

    loader = torch.utils.data.DataLoader
    original = loader.__init__

    def __init__(self, *arguments, **named):
        named["pin_memory"] = False
        original(self, *arguments[:7], **named)

    loader.__init__ = __init__
    if hasattr(torch._C, "_cuda_getDeviceCount"):
        torch._C._cuda_getDeviceCount = lambda: _what["count"]
