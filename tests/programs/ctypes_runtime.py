# SPDX-License-Identifier: Apache-2.0
# What: libcudart and libcuda reached through ctypes, by SONAME, by path and beside torch: memory, copies, streams, events, managed and registered memory.
import ctypes
import glob
import os

import torch

major = torch.version.cuda.split(".")[0]
names = [f"libcudart.so.{'11.0' if major == '11' else major}"]
roots = os.path.join(os.path.dirname(os.path.dirname(torch.__file__)), "nvidia")
names += glob.glob(os.path.join(roots, "**", names[0]), recursive=True)
MIB = 1 << 20


def check(error):
    assert error == 0, error


def by_name(runtime):
    count, device = ctypes.c_int(), ctypes.c_int(-1)
    check(runtime.cudaGetDeviceCount(ctypes.byref(count)))
    check(runtime.cudaGetDevice(ctypes.byref(device)))
    assert (count.value, device.value) == (1, 0)
    version = ctypes.c_int()
    check(runtime.cudaRuntimeGetVersion(ctypes.byref(version)))
    assert version.value // 1000 == int(major), version.value

    pointer, managed = ctypes.c_void_p(), ctypes.c_void_p()
    before = torch.cuda.mem_get_info()[0]
    check(runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(8 * MIB)))
    assert before - torch.cuda.mem_get_info()[0] == 8 * MIB
    source, back = (ctypes.c_int * 4)(1, 2, 3, 4), (ctypes.c_int * 4)()
    check(runtime.cudaMemcpy(pointer, source, ctypes.c_size_t(16), 1))
    check(runtime.cudaMemcpy(back, pointer, ctypes.c_size_t(16), 2))
    assert list(back) == [1, 2, 3, 4]
    check(runtime.cudaMemset(pointer, 0x7f, ctypes.c_size_t(16)))
    check(runtime.cudaMemcpy(back, pointer, ctypes.c_size_t(16), 2))
    assert list(back) == [0x7F7F7F7F] * 4

    # Managed memory is used from both sides.
    check(runtime.cudaMallocManaged(ctypes.byref(managed), ctypes.c_size_t(4 * MIB), 1))
    both = (ctypes.c_float * 4).from_address(managed.value)
    both[3] = 2.5
    check(runtime.cudaMemcpy(back, managed, ctypes.c_size_t(16), 2))
    assert ctypes.c_float.from_buffer(back, 12).value == 2.5
    check(runtime.cudaFree(managed))

    # Registered memory
    page = (ctypes.c_char * (2 * MIB))()
    check(runtime.cudaHostRegister(page, ctypes.c_size_t(2 * MIB), 0))
    assert runtime.cudaHostRegister(page, ctypes.c_size_t(2 * MIB), 0) == 712
    check(runtime.cudaHostUnregister(page))
    assert runtime.cudaGetLastError() == 712 and runtime.cudaGetLastError() == 0

    stream, start, end, ms = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_float()
    check(runtime.cudaStreamCreate(ctypes.byref(stream)))
    check(runtime.cudaEventCreate(ctypes.byref(start)))
    check(runtime.cudaEventCreate(ctypes.byref(end)))
    check(runtime.cudaEventRecord(start, stream))
    check(runtime.cudaMemsetAsync(pointer, 0, ctypes.c_size_t(8 * MIB), stream))
    check(runtime.cudaEventRecord(end, stream))
    check(runtime.cudaStreamSynchronize(stream))
    check(runtime.cudaEventElapsedTime(ctypes.byref(ms), start, end))
    assert 0 < ms.value < 1000
    check(runtime.cudaFree(pointer))
    assert runtime.cudaFree(pointer) == 1
    runtime.cudaGetErrorString.restype = ctypes.c_char_p
    assert runtime.cudaGetErrorString(2) == b"out of memory"


torch.ones(1, device="cuda")
by_name(ctypes.CDLL(None))
for name in names:
    by_name(ctypes.CDLL(name))

driver = ctypes.CDLL("libcuda.so.1")
check(driver.cuInit(0))
device, free, total = ctypes.c_int(), ctypes.c_size_t(), ctypes.c_size_t()
text = ctypes.create_string_buffer(64)
check(driver.cuDeviceGet(ctypes.byref(device), 0))
check(driver.cuDeviceGetName(text, 64, device))
assert text.value.decode() == torch.cuda.get_device_name(0)
check(driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
assert (free.value, total.value) == torch.cuda.mem_get_info()
print("ok")
