// SPDX-License-Identifier: Apache-2.0
// The driver's allocation functions (CUDA Driver API, "Memory Management", "Virtual Memory Management") and the look-ups
// that hand out their addresses. Runs in a job's processes; every function is passed on to the next library.
#include <string.h>

#include "estimator/meter/meter.h"

namespace gpumem::meter {
namespace {

using DevicePointer = uint64_t;  // CUdeviceptr
using AllocationHandle = uint64_t;  // CUmemGenericAllocationHandle

int current_device() {
  int device = -1;
  return pass_on("cuCtxGetDevice", &device) == 0 ? device : -1;
}

template <class Call>
int allocate(uint64_t *key, int device, uint64_t bytes, Call call) {
  Metered metered;
  if (metered.nested() || key == nullptr || !active()) return call();
  if (device < 0) device = current_device();
  const uint64_t held = held_bytes(bytes);
  if (!charge(device, held)) return kOutOfMemory;
  const int status = call();
  if (status == 0) {
    remember(*key, device, held);
  } else {
    give_back(device, held);
  }
  return status;
}

template <class Call>
int release(uint64_t key, Call call) {
  Metered metered;
  if (!metered.nested() && active()) forget(key);
  return call();
}

// The head of CUmemAllocationProp: type, requestedHandleTypes, location {type, id}.
struct AllocationProperties {
  int type, handle_types, location_type, location_id;
};
constexpr int kLocationDevice = 1;  // CU_MEM_LOCATION_TYPE_DEVICE

}  // namespace

GPUMEM_EXPORT int cuMemAlloc_v2(DevicePointer *pointer, size_t bytes) {
  return allocate(pointer, -1, bytes, [=] { return pass_on("cuMemAlloc_v2", pointer, bytes); });
}
GPUMEM_EXPORT int cuMemAllocPitch_v2(DevicePointer *pointer, size_t *pitch, size_t width, size_t height, unsigned element) {
  return allocate(pointer, -1, (width + 511) / 512 * 512 * height,
                  [=] { return pass_on("cuMemAllocPitch_v2", pointer, pitch, width, height, element); });
}
GPUMEM_EXPORT int cuMemAllocManaged(DevicePointer *pointer, size_t bytes, unsigned flags) {
  return allocate(pointer, -1, bytes, [=] { return pass_on("cuMemAllocManaged", pointer, bytes, flags); });
}
GPUMEM_EXPORT int cuMemAllocAsync(DevicePointer *pointer, size_t bytes, void *stream) {
  return allocate(pointer, -1, bytes, [=] { return pass_on("cuMemAllocAsync", pointer, bytes, stream); });
}
GPUMEM_EXPORT int cuMemAllocFromPoolAsync(DevicePointer *pointer, size_t bytes, void *pool, void *stream) {
  return allocate(pointer, -1, bytes, [=] { return pass_on("cuMemAllocFromPoolAsync", pointer, bytes, pool, stream); });
}
GPUMEM_EXPORT int cuMemFree_v2(DevicePointer pointer) {
  return release(pointer, [=] { return pass_on("cuMemFree_v2", pointer); });
}
GPUMEM_EXPORT int cuMemFreeAsync(DevicePointer pointer, void *stream) {
  return release(pointer, [=] { return pass_on("cuMemFreeAsync", pointer, stream); });
}
// Physical memory behind expandable segments. Memory of the host (location type not device) is not the device's.
GPUMEM_EXPORT int cuMemCreate(AllocationHandle *handle, size_t bytes, const AllocationProperties *properties, unsigned long long flags) {
  auto call = [=] { return pass_on("cuMemCreate", handle, bytes, properties, flags); };
  if (properties == nullptr || properties->location_type != kLocationDevice) return call();
  return allocate(handle, properties->location_id, bytes, call);
}
GPUMEM_EXPORT int cuMemRelease(AllocationHandle handle) {
  return release(handle, [=] { return pass_on("cuMemRelease", handle); });
}
GPUMEM_EXPORT int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
  const int status = pass_on("cuMemGetInfo_v2", free_bytes, total_bytes);
  if (status == 0 && active()) limit_memory_info(current_device(), free_bytes, total_bytes);
  return status;
}

namespace {

struct Intercepted {
  const char *base_name, *exported;
  void *function;
};

const Intercepted *find_intercepted(const char *base_name) {
  static const Intercepted kTable[] = {
      {"cuMemAlloc", "cuMemAlloc_v2", reinterpret_cast<void *>(&cuMemAlloc_v2)},
      {"cuMemAllocPitch", "cuMemAllocPitch_v2", reinterpret_cast<void *>(&cuMemAllocPitch_v2)},
      {"cuMemAllocManaged", "cuMemAllocManaged", reinterpret_cast<void *>(&cuMemAllocManaged)},
      {"cuMemAllocAsync", "cuMemAllocAsync", reinterpret_cast<void *>(&cuMemAllocAsync)},
      {"cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync", reinterpret_cast<void *>(&cuMemAllocFromPoolAsync)},
      {"cuMemFree", "cuMemFree_v2", reinterpret_cast<void *>(&cuMemFree_v2)},
      {"cuMemFreeAsync", "cuMemFreeAsync", reinterpret_cast<void *>(&cuMemFreeAsync)},
      {"cuMemCreate", "cuMemCreate", reinterpret_cast<void *>(&cuMemCreate)},
      {"cuMemRelease", "cuMemRelease", reinterpret_cast<void *>(&cuMemRelease)},
      {"cuMemGetInfo", "cuMemGetInfo_v2", reinterpret_cast<void *>(&cuMemGetInfo_v2)},
  };
  if (base_name == nullptr) return nullptr;
  for (const auto &entry : kTable) {
    if (strcmp(entry.base_name, base_name) == 0 || strcmp(entry.exported, base_name) == 0) return &entry;
  }
  return nullptr;
}

// After a successful look-up of `name`: what the program gets is ours, and ours knows where to pass on.
void take_over(const char *name, void **function) {
  const Intercepted *entry = find_intercepted(name);
  if (entry == nullptr || function == nullptr || *function == nullptr || !active()) return;
  if (*function == entry->function) return;
  set_next_function(entry->exported, *function);
  *function = entry->function;
}

}  // namespace

GPUMEM_EXPORT int cuGetProcAddress(const char *name, void **function, int version, uint64_t flags) {
  const int status = pass_on("cuGetProcAddress", name, function, version, flags);
  if (status == 0) take_over(name, function);
  return status;
}
GPUMEM_EXPORT int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *found) {
  const int status = pass_on("cuGetProcAddress_v2", name, function, version, flags, found);
  if (status == 0) take_over(name, function);
  return status;
}
GPUMEM_EXPORT int cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags, int *found) {
  const int status = pass_on("cudaGetDriverEntryPoint", name, function, flags, found);
  if (status == 0) take_over(name, function);
  return status;
}
GPUMEM_EXPORT int cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version, unsigned long long flags,
                                                   int *found) {
  const int status = pass_on("cudaGetDriverEntryPointByVersion", name, function, version, flags, found);
  if (status == 0) take_over(name, function);
  return status;
}

}  // namespace gpumem::meter
