# SPDX-License-Identifier: Apache-2.0
# What: a MIG instance as the only GPU: its name, its share of the GPU, NVML, CUDA_VISIBLE_DEVICES by its UUID.
# gpu: NVIDIA A100-SXM4-40GB MIG 1g.5gb
import ctypes
import os
import subprocess
import sys

import torch

MIB = 1 << 20
device = torch.cuda.get_device_properties(0)
assert device.name == "NVIDIA A100-SXM4-40GB MIG 1g.5gb", device.name
assert (torch.cuda.device_count(), device.multi_processor_count, device.total_memory) == (1, 14, 4864 * MIB), device

nvml = ctypes.CDLL("libnvidia-ml.so.1")
assert nvml.nvmlInit_v2() == 0
handle, instance, answer, other = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint(), ctypes.c_uint()
assert nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle)) == 0
assert nvml.nvmlDeviceGetMigMode(handle, ctypes.byref(answer), ctypes.byref(other)) == 0 and answer.value == other.value == 1
assert nvml.nvmlDeviceGetMaxMigDeviceCount(handle, ctypes.byref(answer)) == 0 and answer.value == 1
assert nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, 0, ctypes.byref(instance)) == 0
assert nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, 1, ctypes.byref(ctypes.c_void_p())) != 0
assert nvml.nvmlDeviceIsMigDeviceHandle(instance, ctypes.byref(answer)) == 0 and answer.value == 1
assert nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(instance, ctypes.byref(handle)) == 0
uuid = ctypes.create_string_buffer(96)
assert nvml.nvmlDeviceGetUUID(instance, uuid, 96) == 0 and uuid.value.startswith(b"MIG-")

for visible, count in ((uuid.value.decode(), 1), ("0", 1), ("MIG-ffffffff", 0)):
    seen = subprocess.run([sys.executable, "-c", "import torch; print(torch.cuda.device_count())"], check=True, capture_output=True, text=True,
                          env=dict(os.environ, CUDA_VISIBLE_DEVICES=visible)).stdout
    assert int(seen) == count, (visible, seen)

layer = torch.nn.Conv2d(3, 64, 3).cuda()
layer(torch.randn(8, 3, 64, 64, device="cuda")).sum().backward()
try:
    torch.empty(5000 * MIB, dtype=torch.uint8, device="cuda")
    raise AssertionError("an instance of 4864 MiB gave 5000 MiB")
except torch.cuda.OutOfMemoryError:
    print("ok: a MIG instance is a GPU of its own size")
