# SPDX-License-Identifier: Apache-2.0
# Checkpoints of tensors that nobody computed cost neither disk nor memory: torch.save and safetensors leave holes in their files
# where memory was never touched, torch.load maps large files. Also whoever reads a CPU tensor's bytes past PyTorch's operators
# (numpy) gets the tracer's lazy values computed first. Only with a tracer.
import io
import json
import os

from . import tracer

LARGE_WRITE = 1 << 20
LARGE_FILE = 16 << 20

_torch = None
_mapped = set()  # real paths of files that tensors are mapped from


def start(torch):
    global _torch
    _torch = torch
    if not tracer.active():
        return
    _compute_before_reading()
    _sparse_torch_save()
    _map_without_reserve()
    _mapped_torch_load()
    from . import imports

    imports.after("safetensors.torch", "_gpumem_shim.checkpoints", "patch_safetensors")


def _compute_before_reading():
    def wrap(original):
        def method(self, *args, **kwargs):
            _compute(self)
            return original(self, *args, **kwargs)

        method.__name__ = getattr(original, "__name__", "method")
        return method

    for name in ("numpy", "tolist"):
        setattr(_torch.Tensor, name, wrap(getattr(_torch.Tensor, name)))


def _compute(tensor):
    try:
        if tracer.any_lazy() and type(tensor) in (_torch.Tensor, _torch.nn.Parameter) and tensor.device.type == "cpu":
            tracer.compute(tensor.untyped_storage().data_ptr())
    except Exception:
        pass


class _Sparse:
    """A file to write to, for PyTorch's zip writer: large pieces of memory come as memoryviews."""

    def __init__(self, path):
        if os.path.realpath(path) in _mapped:  # truncating it would take loaded tensors away
            os.unlink(os.path.realpath(path))
        self.file = open(path, "wb", buffering=0)

    def write(self, data):
        return _write(self.file, data)

    def flush(self):
        pass


def _write(file, data):
    view = memoryview(data).cast("B")
    if view.nbytes >= LARGE_WRITE:
        tracer.write_sparse(file.fileno(), _address(view), view.nbytes)
        return view.nbytes
    done = 0
    while done < view.nbytes:
        done += file.write(view[done:])
    return done


def _address(view):
    import ctypes

    class Buffer(ctypes.Structure):
        _fields_ = [("buf", ctypes.c_void_p), ("rest", ctypes.c_ubyte * 128)]

    buffer = Buffer()
    api = ctypes.pythonapi
    if api.PyObject_GetBuffer(ctypes.py_object(view), ctypes.byref(buffer), 0) != 0:
        raise BufferError("no buffer")
    address = buffer.buf
    api.PyBuffer_Release(ctypes.byref(buffer))
    return address


class _SparseObject(_Sparse):
    """The same for a file that the program has opened."""

    def __init__(self, file):
        self.file = file

    def write(self, data):
        view = memoryview(data)
        if view.nbytes < LARGE_WRITE:
            return self.file.write(data)
        self.file.flush()
        position = self.file.tell()
        raw = getattr(self.file, "raw", self.file)
        os.lseek(raw.fileno(), position, os.SEEK_SET)
        _write(raw, data)
        self.file.seek(position + view.nbytes)
        return view.nbytes

    def flush(self):
        self.file.flush()


def _sparse_torch_save():
    original = _torch._C.PyTorchFileWriter
    version = tuple(int(part) for part in _torch.__version__.split("+")[0].split(".")[:2])

    def PyTorchFileWriter(target, *args, **kwargs):
        if isinstance(target, (str, os.PathLike)):
            target = _Sparse(os.fspath(target))
        elif type(target) in (io.BufferedWriter, io.FileIO) and target.seekable():
            target = _SparseObject(target)
        if version >= (2, 6):  # a checksum would read it all; nobody checks it
            args = (False,) + args[1:]
            kwargs.pop("compute_crc32", None)
        return original(target, *args, **kwargs)

    _torch._C.PyTorchFileWriter = PyTorchFileWriter


def _map_without_reserve():
    """PyTorch maps files so that the kernel sets memory aside for all that could be written, and refuses what exceeds the machine's."""
    original = _torch.UntypedStorage.from_file

    def from_file(filename, shared=False, nbytes=0, *args, **kwargs):
        size = nbytes or kwargs.get("size", 0)
        if shared or args or size < LARGE_FILE:
            return original(filename, shared, nbytes, *args, **kwargs)
        import mmap

        with open(filename, "rb") as file:
            flags = mmap.MAP_PRIVATE | getattr(mmap, "MAP_NORESERVE", 0x4000)
            mapped = mmap.mmap(file.fileno(), size, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)
            held = os.dup(file.fileno())
        _mapped.add(os.path.realpath(filename))
        storage = _torch.frombuffer(mapped, dtype=_torch.uint8).untyped_storage()
        tracer.mapped(storage.data_ptr(), size, held)
        return storage

    _torch.UntypedStorage.from_file = staticmethod(from_file)


def _mapped_torch_load():
    import functools

    serialization = _torch.serialization
    original = serialization.load

    @functools.wraps(original)
    def load(f, *args, **kwargs):
        if kwargs.get("mmap") is None:
            path = _path_to_map(f)
            if path is not None:
                _mapped.add(os.path.realpath(path))
                return original(path, *args, **dict(kwargs, mmap=True))
        return original(f, *args, **kwargs)

    serialization.load = _torch.load = load


def _path_to_map(f):
    """The path of a large zip file that `f` is or has been opened from, else None."""
    try:
        path = f
        if type(f) is io.BufferedReader and f.tell() == 0:
            path = f.name
        if not isinstance(path, (str, os.PathLike)) or os.path.getsize(path) < LARGE_FILE:
            return None
        with open(path, "rb") as file:
            if file.read(4) != b"PK\x03\x04":
                return None
        reader = _torch._C.PyTorchFileReader(os.fspath(path))
        return None if "constants.pkl" in reader.get_all_records() else os.fspath(path)  # TorchScript
    except Exception:
        return None


_TYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint8": "U8", "bool": "BOOL", "uint64": "U64", "uint32": "U32", "uint16": "U16", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
}


def patch_safetensors(module):
    """save_file writes tensors from where they are (old versions copy them to bytes first), holes and all; load_file maps them."""
    original = module.save_file

    def save_file(tensors, filename, metadata=None):
        try:
            known = all(str(t.dtype).split(".")[-1] in _TYPES and t.layout == _torch.strided for t in tensors.values())
            large = sum(t.numel() * t.element_size() for t in tensors.values()) >= LARGE_FILE
        except Exception:
            known = large = False
        if not known or not large or any(not t.is_contiguous() for t in tensors.values()):
            return original(tensors, filename, metadata)
        # What the original refuses (shared memory) is refused in its own words: without data there is nothing to copy.
        shared = getattr(module, "_find_shared_tensors", None)
        if shared is not None and any(len(names) > 1 for names in shared(tensors)):
            return original(tensors, filename, metadata)
        _save(tensors, os.fspath(filename), metadata)

    module.save_file = save_file
    original_load = module.load_file

    def load_file(filename, device="cpu", *args, **kwargs):
        try:
            large = os.path.getsize(filename) >= LARGE_FILE and not args and not kwargs
        except Exception:
            large = False
        if not large:
            return original_load(filename, device, *args, **kwargs)
        # One by one on the CPU they are views of the mapped file; new versions read all of it for all at once, or for a device.
        with module.safe_open(filename, framework="pt", device="cpu") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}
        return tensors if str(device) == "cpu" else {name: t.to(device) for name, t in tensors.items()}

    module.load_file = load_file


def _save(tensors, path, metadata):
    # The order of the original: wide types first, then by name.
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header, end = {}, 0
    if metadata is not None:
        header["__metadata__"] = metadata
    for name in names:
        t = tensors[name]
        begin, end = end, end + t.numel() * t.element_size()
        header[name] = {"dtype": _TYPES[str(t.dtype).split(".")[-1]], "shape": list(t.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if os.path.realpath(path) in _mapped:
        os.unlink(os.path.realpath(path))
    with open(path, "wb", buffering=0) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            t = tensors[name].detach().cpu()
            size = t.numel() * t.element_size()
            if size:
                _compute(t)
                tracer.write_sparse(file.fileno(), t.data_ptr(), size)
