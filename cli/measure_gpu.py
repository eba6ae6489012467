# SPDX-License-Identifier: Apache-2.0
"""What one PyTorch build says of a real GPU: context, usable memory, bandwidths, cuDNN's device description. One JSON object.

Run by `gpumem calibrate` in the user's Python, as that user, alone on the GPU: python measure_gpu.py UUID. tests/accuracy/collect
uses its NVML and cuDNN parts. The GPU is the first that CUDA_VISIBLE_DEVICES leaves.
"""
import ctypes
import json
import os
import sys

MIB = 1 << 20
NOT_AVAILABLE = 1 << 62  # NVML answers with all ones where it cannot tell


class ProcessInfo(ctypes.Structure):
    """nvmlProcessInfo_v2_t."""
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gpu_instance", ctypes.c_uint), ("compute_instance", ctypes.c_uint)]


class MemoryInfo(ctypes.Structure):
    """nvmlMemory_t."""
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Nvml:
    """The device of this UUID: CUDA and NVML may number devices differently."""

    def __init__(self, uuid):
        self.library = ctypes.CDLL("libnvidia-ml.so.1")
        self.check("nvmlInit_v2", self.library.nvmlInit_v2())
        self.handle = ctypes.c_void_p()
        name = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
        self.check("nvmlDeviceGetHandleByUUID", self.library.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(self.handle)))

    @staticmethod
    def check(what, status):
        if status != 0:
            raise RuntimeError(f"{what} failed with NVML status {status}")

    def driver(self):
        text = ctypes.create_string_buffer(96)
        self.check("nvmlSystemGetDriverVersion", self.library.nvmlSystemGetDriverVersion(text, 96))
        return text.value.decode()

    def memory(self):
        info = MemoryInfo()
        self.check("nvmlDeviceGetMemoryInfo", self.library.nvmlDeviceGetMemoryInfo(self.handle, ctypes.byref(info)))
        return {"total_bytes": info.total, "used_bytes": info.used}

    def processes(self):
        count = ctypes.c_uint(256)
        infos = (ProcessInfo * 256)()
        call = getattr(self.library, "nvmlDeviceGetComputeRunningProcesses_v3", None)
        if call is None or call(self.handle, ctypes.byref(count), infos) != 0:
            return None
        return {infos[i].pid: infos[i].used for i in range(count.value)}

    def sample(self):
        """Use of the device, and of this process; where the pid is not ours (containers), of the only process there is."""
        sample = self.memory()
        processes = self.processes()
        sample["own_bytes"] = None
        if processes is not None:
            own = processes.get(os.getpid())
            if own is None and len(processes) == 1:
                own = next(iter(processes.values()))
            if own is not None and own < NOT_AVAILABLE:
                sample["own_bytes"] = own
            sample["processes"] = len(processes)
        return sample


DEVICEPROP_DESCRIPTOR, DEVICEPROP_HANDLE, DEVICEPROP_JSON = 38, 2701, 2702
TYPE_HANDLE, TYPE_CHAR = 0, 24


def cudnn_device_json():
    """cuDNN's description of the device (9.8 and newer), for planning without it: (text, None) or (None, why not)."""
    import torch
    if not torch.backends.cudnn.is_available() or torch.backends.cudnn.version() < 90800:
        return None, f"cuDNN {torch.backends.cudnn.version()} is older than 9.8"
    torch.nn.functional.conv2d(torch.zeros(1, 1, 8, 8, device="cuda"), torch.zeros(1, 1, 3, 3, device="cuda"))
    with open("/proc/self/maps", encoding="utf-8") as file:
        path = next((line.split()[-1] for line in file if "/libcudnn.so.9" in line), None)
    if path is None:
        return None, "libcudnn.so.9 is not loaded"
    library = ctypes.CDLL(path)
    handle, descriptor = ctypes.c_void_p(), ctypes.c_void_p()
    set_attribute = library.cudnnBackendSetAttribute
    get_attribute = library.cudnnBackendGetAttribute
    set_attribute.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_void_p]
    get_attribute.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p]
    count = ctypes.c_int64(0)
    text = ctypes.create_string_buffer(1 << 16)
    steps = (
        ("cudnnCreate", lambda: library.cudnnCreate(ctypes.byref(handle))),
        ("cudnnBackendCreateDescriptor", lambda: library.cudnnBackendCreateDescriptor(DEVICEPROP_DESCRIPTOR, ctypes.byref(descriptor))),
        ("cudnnBackendSetAttribute", lambda: set_attribute(descriptor, DEVICEPROP_HANDLE, TYPE_HANDLE, 1, ctypes.byref(handle))),
        ("cudnnBackendFinalize", lambda: library.cudnnBackendFinalize(descriptor)),
        ("cudnnBackendGetAttribute",
         lambda: get_attribute(descriptor, DEVICEPROP_JSON, TYPE_CHAR, len(text), ctypes.byref(count), text)),
    )
    for name, step in steps:
        status = step()
        if status != 0:
            return None, f"{name} failed with cuDNN status {status}"
    return text.raw[:count.value].split(b"\0")[0].decode(), None


def train(torch):
    """Steps that load what training loads: convolutions, matrix products in three types, attention, norms, a fused optimizer."""
    nn, device = torch.nn, "cuda"
    images = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 64, 3, groups=64), nn.MaxPool2d(2),
                           nn.Flatten(), nn.LazyLinear(100))
    words = nn.Sequential(nn.Embedding(1000, 256), nn.TransformerEncoderLayer(256, 4, batch_first=True), nn.LayerNorm(256), nn.Linear(256, 1000))
    images(torch.zeros(2, 3, 64, 64))
    images.to(device), words.to(device)
    optimizer = torch.optim.AdamW(list(images.parameters()) + list(words.parameters()), lr=1e-3)
    for kind in (torch.float32, torch.float16, torch.bfloat16):
        for _ in range(2):
            with torch.autocast("cuda", dtype=kind, enabled=kind != torch.float32):
                loss = nn.functional.cross_entropy(images(torch.randn(16, 3, 64, 64, device=device)), torch.randint(0, 100, (16,), device=device))
                tokens = torch.randint(0, 1000, (8, 128), device=device)
                loss = loss + nn.functional.cross_entropy(words(tokens).flatten(0, 1), tokens.flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(images.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            loss.item()
    torch.cuda.synchronize()


def fill(torch):
    """Takes device memory in whole segments until there is none; returns how much PyTorch could reserve."""
    held = []
    for size in (1024 * MIB, 64 * MIB, 20 * MIB):
        while True:
            try:
                held.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
            except torch.OutOfMemoryError:
                break
    reserved = torch.cuda.memory_reserved()
    held.clear()
    torch.cuda.empty_cache()
    return reserved


def bandwidth(torch, source, destination):
    """The best of five copies, in bytes a second."""
    best = 0.0
    for _ in range(5):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        destination.copy_(source, non_blocking=True)
        end.record()
        end.synchronize()
        milliseconds = start.elapsed_time(end)
        if milliseconds > 0:
            best = max(best, source.numel() / milliseconds * 1000)
    return int(best)


def measure(uuid):
    nvml = Nvml(uuid)
    others = nvml.processes()
    import torch
    if torch.version.cuda is None:
        raise RuntimeError(f"torch {torch.__version__} of {sys.executable} has no CUDA")
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()

    def context():
        own = nvml.sample()["own_bytes"]
        return None if own is None else own - torch.cuda.memory_reserved()

    result = {"torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(), "driver": nvml.driver(),
              "python": sys.executable, "other_processes": None if others is None else len(others), "notes": []}
    result["bare_bytes"] = context()
    train(torch)
    result["warm_bytes"] = context()
    if result["warm_bytes"] is None:
        result["notes"].append("NVML does not say what this process takes (a container without the host's pids?): no context was measured")
    text, why_not = cudnn_device_json()
    if text is None:
        result["notes"].append(f"no cuDNN device description: {why_not}")
    result["cudnn_device"] = None if text is None else json.loads(text)
    host = torch.empty(256 * MIB, dtype=torch.uint8, pin_memory=True)
    here, there = (torch.empty(256 * MIB, dtype=torch.uint8, device="cuda") for _ in range(2))
    result["h2d_bytes_per_s"] = bandwidth(torch, host, here)
    result["d2h_bytes_per_s"] = bandwidth(torch, here, host)
    result["d2d_bytes_per_s"] = bandwidth(torch, here, there)
    del host, here, there
    torch.cuda.empty_cache()
    warm = context()
    result["usable_bytes"] = None if warm is None or others else fill(torch) + warm
    return result


if __name__ == "__main__":
    try:
        print(json.dumps(measure(sys.argv[1])))
    except Exception as error:  # one line for gpumem calibrate, whatever it was
        sys.exit(f"{type(error).__name__}: {error}")
