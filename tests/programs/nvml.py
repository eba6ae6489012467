# SPDX-License-Identifier: Apache-2.0
# What: NVML through pynvml (nvidia-ml-py) and through torch: devices, memory, processes, utilization.
# needs: nvidia-ml-py
import os

import pynvml
import torch

MIB = 1 << 20
pynvml.nvmlInit()
assert pynvml.nvmlDeviceGetCount() == 1 == torch.cuda.device_count()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
assert pynvml.nvmlDeviceGetName(handle) == torch.cuda.get_device_name(0)
uuid = pynvml.nvmlDeviceGetUUID(handle)
assert uuid.startswith("GPU-") and pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByUUID(uuid)) == 0
assert pynvml.nvmlDeviceGetCudaComputeCapability(handle) == torch.cuda.get_device_capability(0)
assert pynvml.nvmlSystemGetDriverVersion() and pynvml.nvmlSystemGetCudaDriverVersion() >= 11080
x = torch.empty(300 * MIB, dtype=torch.uint8, device="cuda")
memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
assert memory.used > 300 * MIB and memory.free + memory.used <= memory.total
second = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
assert second.total == memory.total
mine = [p for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle) if p.usedGpuMemory]
assert any(p.pid == os.getpid() and p.usedGpuMemory > 300 * MIB for p in mine), mine
rates = pynvml.nvmlDeviceGetUtilizationRates(handle)
assert 0 <= rates.gpu <= 100
assert pynvml.nvmlDeviceGetPciInfo(handle).busId
try:
    pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)
except pynvml.NVMLError as error:
    assert error.value == pynvml.NVML_ERROR_NOT_SUPPORTED
try:
    pynvml.nvmlDeviceGetHandleByIndex(5)
    raise AssertionError("there is no device 5")
except pynvml.NVMLError as error:
    assert error.value == pynvml.NVML_ERROR_INVALID_ARGUMENT
assert torch.cuda.utilization() >= 0 and str(os.getpid()) in torch.cuda.list_gpu_processes()
assert torch.cuda.device_memory_used() > 300 * MIB if hasattr(torch.cuda, "device_memory_used") else True
pynvml.nvmlShutdown()
print("ok")
