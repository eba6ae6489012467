// SPDX-License-Identifier: Apache-2.0
// NVML: initialisation, versions, errors, finding devices. Part of libgpumem_vgpu.so.
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "estimator/virtual_gpu/device/facts.h"
#include "estimator/virtual_gpu/nvml/nvml.h"

namespace gpumem::virtual_gpu::nvml {

int initialized;

namespace {
// No address of a real object: a program that looks into a handle crashes here as it would anywhere.
constexpr uintptr_t kHandleTag = 0x6e766d6c0000;
}  // namespace

DeviceHandle handle_of(int device) { return reinterpret_cast<DeviceHandle>(kHandleTag + static_cast<uintptr_t>(device) + 1); }

int device_of(DeviceHandle handle, int *device) {
  if (initialized == 0) return kUninitialized;
  const uintptr_t number = reinterpret_cast<uintptr_t>(handle) - kHandleTag - 1;
  if (number >= static_cast<uintptr_t>(book::device_count(state.book))) return kInvalidArgument;
  *device = static_cast<int>(number);
  return kSuccess;
}

int find(DeviceHandle handle, const book::DeviceDescription **description) {
  int device = 0;
  const int status = device_of(handle, &device);
  if (status == kSuccess) *description = book::description(state.book, device);
  return status;
}

int copy_text(char *to, unsigned size, const char *text) {
  if (to == nullptr) return kInvalidArgument;
  if (strlen(text) + 1 > size) return kInsufficientSize;
  strcpy(to, text);
  return kSuccess;
}

namespace {

int initialize() {
  if (!open_book()) return kDriverNotLoaded;
  __atomic_add_fetch(&initialized, 1, __ATOMIC_RELAXED);
  return kSuccess;
}

// `matches` says of each description whether it is the one.
template <class Matches>
int find_handle(DeviceHandle *handle, Matches matches) {
  if (initialized == 0) return kUninitialized;
  if (handle == nullptr) return kInvalidArgument;
  for (int device = 0; device < book::device_count(state.book); ++device) {
    if (!matches(*book::description(state.book, device))) continue;
    *handle = handle_of(device);
    return kSuccess;
  }
  return kNotFound;
}

}  // namespace
}  // namespace gpumem::virtual_gpu::nvml

using namespace gpumem;
using namespace gpumem::virtual_gpu;
using namespace gpumem::virtual_gpu::nvml;

GPUMEM_EXPORT int nvmlInit() { return initialize(); }
GPUMEM_EXPORT int nvmlInit_v2() { return initialize(); }
GPUMEM_EXPORT int nvmlInitWithFlags(unsigned) { return initialize(); }

GPUMEM_EXPORT int nvmlShutdown() {
  if (initialized == 0) return kUninitialized;
  __atomic_sub_fetch(&initialized, 1, __ATOMIC_RELAXED);
  return kSuccess;
}

GPUMEM_EXPORT const char *nvmlErrorString(int status) {
  switch (status) {
    case kSuccess: return "Success";
    case kUninitialized: return "Uninitialized";
    case kInvalidArgument: return "Invalid Argument";
    case kNotSupported: return "Not Supported";
    case kNotFound: return "Not Found";
    case kInsufficientSize: return "Insufficient Size";
    case kDriverNotLoaded: return "Driver Not Loaded";
    case kVersionMismatch: return "Argument version mismatch";
    default: return "Unknown Error";
  }
}

GPUMEM_EXPORT int nvmlSystemGetDriverVersion(char *text, unsigned size) {
  if (initialized == 0) return kUninitialized;
  return copy_text(text, size, book::description(state.book, 0)->driver_version);
}

// NVML's version is "CUDA's major" + "." + driver version, as NVIDIA's prints it (13.580.65.06).
GPUMEM_EXPORT int nvmlSystemGetNVMLVersion(char *text, unsigned size) {
  if (initialized == 0) return kUninitialized;
  const auto *description = book::description(state.book, 0);
  char version[40];
  snprintf(version, sizeof version, "%u.%s", description->cuda_version / 1000, description->driver_version);
  return copy_text(text, size, version);
}

static int cuda_version(int *version) {
  if (initialized == 0) return kUninitialized;
  if (version == nullptr) return kInvalidArgument;
  *version = static_cast<int>(book::description(state.book, 0)->cuda_version);
  return kSuccess;
}
GPUMEM_EXPORT int nvmlSystemGetCudaDriverVersion(int *version) { return cuda_version(version); }
GPUMEM_EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *version) { return cuda_version(version); }

static int device_count(unsigned *count) {
  if (initialized == 0) return kUninitialized;
  if (count == nullptr) return kInvalidArgument;
  *count = static_cast<unsigned>(book::device_count(state.book));
  return kSuccess;
}
GPUMEM_EXPORT int nvmlDeviceGetCount(unsigned *count) { return device_count(count); }
GPUMEM_EXPORT int nvmlDeviceGetCount_v2(unsigned *count) { return device_count(count); }

static int by_index(unsigned index, DeviceHandle *handle) {
  if (initialized == 0) return kUninitialized;
  if (handle == nullptr || index >= static_cast<unsigned>(book::device_count(state.book))) return kInvalidArgument;
  *handle = handle_of(static_cast<int>(index));
  return kSuccess;
}
GPUMEM_EXPORT int nvmlDeviceGetHandleByIndex(unsigned index, DeviceHandle *handle) { return by_index(index, handle); }
GPUMEM_EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, DeviceHandle *handle) { return by_index(index, handle); }

GPUMEM_EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, DeviceHandle *handle) {
  if (uuid == nullptr) return kInvalidArgument;
  return find_handle(handle, [=](const book::DeviceDescription &device) { return strcmp(device.uuid, uuid) == 0; });
}

static int by_bus_id(const char *bus_id, DeviceHandle *handle) {
  if (bus_id == nullptr) return kInvalidArgument;
  return find_handle(handle, [=](const book::DeviceDescription &device) { return same_bus_id(device.pci_bus_id, bus_id); });
}
GPUMEM_EXPORT int nvmlDeviceGetHandleByPciBusId(const char *bus_id, DeviceHandle *handle) { return by_bus_id(bus_id, handle); }
GPUMEM_EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, DeviceHandle *handle) { return by_bus_id(bus_id, handle); }
GPUMEM_EXPORT int nvmlDeviceGetHandleBySerial(const char *serial, DeviceHandle *handle) {
  if (serial == nullptr) return kInvalidArgument;
  return find_handle(handle, [=](const book::DeviceDescription &device) { return *serial && strcmp(device.serial, serial) == 0; });
}
