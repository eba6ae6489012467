// SPDX-License-Identifier: Apache-2.0
// NVML: what a device is. Part of libgpumem_vgpu.so.
#include <stdio.h>
#include <string.h>

#include "estimator/virtual_gpu/nvml/nvml.h"

using namespace gpumem;
using namespace gpumem::virtual_gpu;
using namespace gpumem::virtual_gpu::nvml;

namespace {

// Runs `answer` with the description, unless the handle or the place for the answer is bad.
template <class Answer>
int describe(DeviceHandle handle, const void *place, Answer answer) {
  const book::DeviceDescription *description = nullptr;
  const int status = find(handle, &description);
  if (status != kSuccess) return status;
  return place == nullptr ? kInvalidArgument : answer(*description);
}

// 0 in a description means "not known".
int known(unsigned value, unsigned *place) {
  if (value == 0) return kNotSupported;
  *place = value;
  return kSuccess;
}

constexpr int kClockGraphics = 0, kClockSm = 1, kClockMemory = 2;  // nvmlClockType_t

struct PciInfo {  // nvmlPciInfo_t
  char bus_id_legacy[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};

int pci_info(DeviceHandle handle, PciInfo *info, bool with_long_id) {
  return describe(handle, info, [=](const book::DeviceDescription &device) {
    memset(info, 0, with_long_id ? sizeof *info : offsetof(PciInfo, bus_id));
    unsigned function = 0;
    if (sscanf(device.pci_bus_id, "%x:%x:%x.%x", &info->domain, &info->bus, &info->device, &function) != 4) return kNotSupported;
    snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "%04x:%02x:%02x.%x", info->domain & 0xffffu, info->bus & 0xffu,
             info->device & 0xffu, function & 0xfu);
    if (with_long_id) snprintf(info->bus_id, sizeof info->bus_id, "%s", device.pci_bus_id);
    return kSuccess;
  });
}

}  // namespace

GPUMEM_EXPORT int nvmlDeviceGetName(DeviceHandle handle, char *text, unsigned size) {
  return describe(handle, text, [=](const book::DeviceDescription &device) { return copy_text(text, size, device.name); });
}
GPUMEM_EXPORT int nvmlDeviceGetUUID(DeviceHandle handle, char *text, unsigned size) {
  return describe(handle, text, [=](const book::DeviceDescription &device) { return copy_text(text, size, device.uuid); });
}
GPUMEM_EXPORT int nvmlDeviceGetSerial(DeviceHandle handle, char *text, unsigned size) {
  return describe(handle, text, [=](const book::DeviceDescription &device) {
    return device.serial[0] == '\0' ? kNotSupported : copy_text(text, size, device.serial);
  });
}

static int index_of(DeviceHandle handle, unsigned *index) {
  int device = 0;
  const int status = device_of(handle, &device);
  if (status != kSuccess) return status;
  if (index == nullptr) return kInvalidArgument;
  *index = static_cast<unsigned>(device);
  return kSuccess;
}
GPUMEM_EXPORT int nvmlDeviceGetIndex(DeviceHandle handle, unsigned *index) { return index_of(handle, index); }
GPUMEM_EXPORT int nvmlDeviceGetMinorNumber(DeviceHandle handle, unsigned *number) { return index_of(handle, number); }

GPUMEM_EXPORT int nvmlDeviceGetCudaComputeCapability(DeviceHandle handle, int *major, int *minor) {
  return describe(handle, major, [=](const book::DeviceDescription &device) {
    if (minor == nullptr) return kInvalidArgument;
    *major = static_cast<int>(device.compute_major);
    *minor = static_cast<int>(device.compute_minor);
    return kSuccess;
  });
}

GPUMEM_EXPORT int nvmlDeviceGetPciInfo(DeviceHandle handle, PciInfo *info) { return pci_info(handle, info, false); }
GPUMEM_EXPORT int nvmlDeviceGetPciInfo_v2(DeviceHandle handle, PciInfo *info) { return pci_info(handle, info, false); }
GPUMEM_EXPORT int nvmlDeviceGetPciInfo_v3(DeviceHandle handle, PciInfo *info) { return pci_info(handle, info, true); }

GPUMEM_EXPORT int nvmlDeviceGetMemoryBusWidth(DeviceHandle handle, unsigned *bits) {
  return describe(handle, bits, [=](const book::DeviceDescription &device) { return known(device.memory_bus_bits, bits); });
}
GPUMEM_EXPORT int nvmlDeviceGetMaxClockInfo(DeviceHandle handle, int type, unsigned *mhz) {
  return describe(handle, mhz, [=](const book::DeviceDescription &device) {
    if (type == kClockMemory) return known(device.memory_clock_khz / 1000, mhz);
    return type == kClockGraphics || type == kClockSm ? known(device.sm_clock_khz / 1000, mhz) : kNotSupported;
  });
}
GPUMEM_EXPORT int nvmlDeviceGetEnforcedPowerLimit(DeviceHandle handle, unsigned *milliwatts) {
  return describe(handle, milliwatts, [=](const book::DeviceDescription &device) { return known(device.power_limit_mw, milliwatts); });
}
GPUMEM_EXPORT int nvmlDeviceGetPowerManagementLimit(DeviceHandle handle, unsigned *milliwatts) {
  return describe(handle, milliwatts, [=](const book::DeviceDescription &device) { return known(device.power_limit_mw, milliwatts); });
}

// A virtual GPU runs no kernels: it is never busy.
GPUMEM_EXPORT int nvmlDeviceGetUtilizationRates(DeviceHandle handle, unsigned *gpu_and_memory) {
  return describe(handle, gpu_and_memory, [=](const book::DeviceDescription &) {
    gpu_and_memory[0] = gpu_and_memory[1] = 0;
    return kSuccess;
  });
}
GPUMEM_EXPORT int nvmlDeviceGetPersistenceMode(DeviceHandle handle, int *mode) {
  return describe(handle, mode, [=](const book::DeviceDescription &) { return *mode = 1, kSuccess; });
}
GPUMEM_EXPORT int nvmlDeviceGetComputeMode(DeviceHandle handle, int *mode) {
  return describe(handle, mode, [=](const book::DeviceDescription &) { return *mode = 0, kSuccess; });  // default: shared
}
GPUMEM_EXPORT int nvmlDeviceGetEccMode(DeviceHandle handle, int *current, int *pending) {
  return describe(handle, current, [=](const book::DeviceDescription &device) {
    if (pending == nullptr) return kInvalidArgument;
    *current = *pending = static_cast<int>(device.ecc);
    return kSuccess;
  });
}
GPUMEM_EXPORT int nvmlDeviceIsMigDeviceHandle(DeviceHandle handle, unsigned *is_mig) {
  return describe(handle, is_mig, [=](const book::DeviceDescription &device) { return *is_mig = device.mig, kSuccess; });
}

// A virtual host has MIG instances without the GPU that they are cut from, as a job that was given one sees it: the
// instance stands for its parent, too, so that programs which walk from one to the other come through.
GPUMEM_EXPORT int nvmlDeviceGetMigMode(DeviceHandle handle, unsigned *current, unsigned *pending) {
  return describe(handle, current, [=](const book::DeviceDescription &device) {
    if (pending == nullptr) return kInvalidArgument;
    if (!device.mig) return kNotSupported;
    *current = *pending = 1;  // NVML_DEVICE_MIG_ENABLE
    return kSuccess;
  });
}
GPUMEM_EXPORT int nvmlDeviceGetMaxMigDeviceCount(DeviceHandle handle, unsigned *count) {
  return describe(handle, count, [=](const book::DeviceDescription &device) { return *count = device.mig, kSuccess; });
}
GPUMEM_EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(DeviceHandle handle, unsigned index, DeviceHandle *instance) {
  return describe(handle, instance, [=](const book::DeviceDescription &device) {
    if (!device.mig || index != 0) return kNotFound;
    *instance = handle;
    return kSuccess;
  });
}
GPUMEM_EXPORT int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(DeviceHandle handle, DeviceHandle *parent) {
  return describe(handle, parent, [=](const book::DeviceDescription &device) {
    if (!device.mig) return kInvalidArgument;
    *parent = handle;
    return kSuccess;
  });
}

static int instance_id(DeviceHandle handle, unsigned *id) {
  return describe(handle, id, [=](const book::DeviceDescription &device) { return device.mig ? (*id = 0, kSuccess) : kNotSupported; });
}
GPUMEM_EXPORT int nvmlDeviceGetGpuInstanceId(DeviceHandle handle, unsigned *id) { return instance_id(handle, id); }
GPUMEM_EXPORT int nvmlDeviceGetComputeInstanceId(DeviceHandle handle, unsigned *id) { return instance_id(handle, id); }
