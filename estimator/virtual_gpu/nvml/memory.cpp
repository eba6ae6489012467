// SPDX-License-Identifier: Apache-2.0
// NVML: memory in use and by whom, from the book. Part of libgpumem_vgpu.so.

#include "estimator/virtual_gpu/nvml/nvml.h"

using namespace gpumem;
using namespace gpumem::virtual_gpu;
using namespace gpumem::virtual_gpu::nvml;

namespace {

struct Memory {  // nvmlMemory_t
  unsigned long long total, free, used;
};
struct Memory2 {  // nvmlMemory_v2_t
  unsigned version;
  unsigned long long total, reserved, free, used;
};
constexpr unsigned kMemory2Version = sizeof(Memory2) | 2u << 24;

struct ProcessInfo1 {  // nvmlProcessInfo_v1_t
  unsigned pid;
  unsigned long long used;
};
struct ProcessInfo2 {  // nvmlProcessInfo_v2_t and nvmlProcessInfo_t
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};
constexpr unsigned kNoInstance = ~0u;

// NVML's first interface counts what the driver keeps as used, the second apart.
int read_memory(DeviceHandle handle, Memory2 *memory) {
  int device = 0;
  const int status = device_of(handle, &device);
  if (status != kSuccess) return status;
  const auto *description = book::description(state.book, device);
  book::DeviceUse use = {};
  if (book::device_use(&state.book, device, &use) != book::Status::ok) return kNotSupported;
  memory->total = description->nvml_total_bytes != 0 ? description->nvml_total_bytes : description->total_bytes;
  memory->reserved = description->nvml_reserved_bytes;
  memory->used = use.used_bytes;
  const unsigned long long taken = memory->reserved + memory->used;
  memory->free = taken < memory->total ? memory->total - taken : 0;
  return kSuccess;
}

struct Listing {
  int device;
  unsigned room, count;
  void *infos;
  bool with_instances;
};

void list_process(void *context, const book::ProcessUse &process) {
  auto *listing = static_cast<Listing *>(context);
  const auto &use = process.devices[listing->device];
  const unsigned long long used = use.context_bytes + use.allocated_bytes;
  if (!process.alive || used == 0) return;
  const unsigned at = listing->count++;
  if (at >= listing->room) return;
  const auto pid = static_cast<unsigned>(process.visible_pid != 0 ? process.visible_pid : process.pid);
  if (listing->with_instances) {
    static_cast<ProcessInfo2 *>(listing->infos)[at] = {pid, used, kNoInstance, kNoInstance};
  } else {
    static_cast<ProcessInfo1 *>(listing->infos)[at] = {pid, used};
  }
}

int list_processes(DeviceHandle handle, unsigned *count, void *infos, bool with_instances) {
  Listing listing = {};
  const int status = device_of(handle, &listing.device);
  if (status != kSuccess) return status;
  if (count == nullptr || (*count != 0 && infos == nullptr)) return kInvalidArgument;
  listing.room = *count;
  listing.infos = infos;
  listing.with_instances = with_instances;
  book::for_each_process(&state.book, list_process, &listing);
  *count = listing.count;
  return listing.count > listing.room ? kInsufficientSize : kSuccess;
}

// Graphics and MPS processes: a virtual GPU has none.
int list_none(DeviceHandle handle, unsigned *count) {
  int device = 0;
  const int status = device_of(handle, &device);
  if (status != kSuccess) return status;
  if (count == nullptr) return kInvalidArgument;
  *count = 0;
  return kSuccess;
}

}  // namespace

GPUMEM_EXPORT int nvmlDeviceGetMemoryInfo(DeviceHandle handle, Memory *memory) {
  if (memory == nullptr) return kInvalidArgument;
  Memory2 found = {};
  const int status = read_memory(handle, &found);
  if (status == kSuccess) *memory = {found.total, found.free, found.reserved + found.used};
  return status;
}

GPUMEM_EXPORT int nvmlDeviceGetMemoryInfo_v2(DeviceHandle handle, Memory2 *memory) {
  if (memory == nullptr) return kInvalidArgument;
  if (memory->version != kMemory2Version) return kVersionMismatch;
  return read_memory(handle, memory);
}

GPUMEM_EXPORT int nvmlDeviceGetComputeRunningProcesses(DeviceHandle handle, unsigned *count, void *infos) {
  return list_processes(handle, count, infos, false);
}
GPUMEM_EXPORT int nvmlDeviceGetComputeRunningProcesses_v2(DeviceHandle handle, unsigned *count, void *infos) {
  return list_processes(handle, count, infos, true);
}
GPUMEM_EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(DeviceHandle handle, unsigned *count, void *infos) {
  return list_processes(handle, count, infos, true);
}
GPUMEM_EXPORT int nvmlDeviceGetGraphicsRunningProcesses(DeviceHandle handle, unsigned *count, void *) { return list_none(handle, count); }
GPUMEM_EXPORT int nvmlDeviceGetGraphicsRunningProcesses_v2(DeviceHandle handle, unsigned *count, void *) { return list_none(handle, count); }
GPUMEM_EXPORT int nvmlDeviceGetGraphicsRunningProcesses_v3(DeviceHandle handle, unsigned *count, void *) { return list_none(handle, count); }
GPUMEM_EXPORT int nvmlDeviceGetMPSComputeRunningProcesses(DeviceHandle handle, unsigned *count, void *) { return list_none(handle, count); }
GPUMEM_EXPORT int nvmlDeviceGetMPSComputeRunningProcesses_v2(DeviceHandle handle, unsigned *count, void *) { return list_none(handle, count); }
GPUMEM_EXPORT int nvmlDeviceGetMPSComputeRunningProcesses_v3(DeviceHandle handle, unsigned *count, void *) { return list_none(handle, count); }
