// SPDX-License-Identifier: Apache-2.0
// The driver's allocation functions (CUDA Driver API, "Memory Management", "Virtual Memory Management", "Stream Ordered Memory
// Allocator"). Runs in a job's processes; every function is passed on to the next library.
#include "estimator/meter/arrays.h"
#include "estimator/meter/meter.h"

namespace gpumem::meter {
namespace {

using DevicePointer = uint64_t;  // CUdeviceptr
using AllocationHandle = uint64_t;  // CUmemGenericAllocationHandle

int current_device() {
  int device = -1;
  return pass_on("cuCtxGetDevice", &device) == 0 ? device : -1;
}

// `call` leaves an address or a handle in *made, which is remembered under it and `kind` of key.
template <class Call>
int allocate(uint64_t *made, uint64_t kind, int device, uint64_t bytes, Call call) {
  Metered metered;
  if (metered.nested() || made == nullptr || !active()) return call();
  if (device == kUnknown) device = current_device();
  const uint64_t held = held_bytes(bytes);
  if (!charge(device, held)) return kOutOfMemory;
  const int status = call();
  if (status == 0) {
    remember(*made | kind, device, held);
  } else {
    give_back(device, held);
  }
  return status;
}
template <class Call>
int allocate(DevicePointer *pointer, uint64_t bytes, Call call) {
  return allocate(pointer, 0, kUnknown, bytes, call);
}
template <class Call>
int allocate_array(void **array, uint64_t bytes, Call call) {
  return allocate(reinterpret_cast<uint64_t *>(array), 0, kUnknown, bytes, call);
}
template <class Call>
int allocate_from(const void *pool, DevicePointer *pointer, uint64_t bytes, Call call) {
  const int device = active() ? device_of(reinterpret_cast<uint64_t>(pool) | kPoolKey, kUnknown) : kUnknown;
  return allocate(pointer, 0, device, bytes, call);
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

struct ArrayDescriptor {  // CUDA_ARRAY_DESCRIPTOR
  size_t width, height;
  int format;
  unsigned channels;
};
struct ArrayDescriptor3D {  // CUDA_ARRAY3D_DESCRIPTOR
  size_t width, height, depth;
  int format;
  unsigned channels, flags;
};
// CUarray_format: 1, 2, 4 bytes an element of a channel; block-compressed and planar ones of at most 2 are counted as 2.
uint64_t element_bytes(int format, unsigned channels) {
  switch (format) {
    case 0x01: case 0x08: return channels;                            // 8 bits
    case 0x03: case 0x0a: case 0x20: return uint64_t{4} * channels;   // 32 bits
    default: return uint64_t{2} * channels;
  }
}

}  // namespace

GPUMEM_EXPORT int cuMemAlloc_v2(DevicePointer *pointer, size_t bytes) {
  return allocate(pointer, bytes, [=] { return pass_on("cuMemAlloc_v2", pointer, bytes); });
}
GPUMEM_EXPORT int cuMemAllocPitch_v2(DevicePointer *pointer, size_t *pitch, size_t width, size_t height, unsigned element) {
  return allocate(pointer, pitched_bytes(width, height),
                  [=] { return pass_on("cuMemAllocPitch_v2", pointer, pitch, width, height, element); });
}
GPUMEM_EXPORT int cuMemAllocManaged(DevicePointer *pointer, size_t bytes, unsigned flags) {
  return allocate(pointer, bytes, [=] { return pass_on("cuMemAllocManaged", pointer, bytes, flags); });
}
GPUMEM_EXPORT int cuMemFree_v2(DevicePointer pointer) {
  return release(pointer, [=] { return pass_on("cuMemFree_v2", pointer); });
}
GPUMEM_EXPORT int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
  const int status = pass_on("cuMemGetInfo_v2", free_bytes, total_bytes);
  if (status == 0 && active()) limit_memory_info(current_device(), free_bytes, total_bytes);
  return status;
}

// --- Stream-ordered ---

GPUMEM_EXPORT int cuMemAllocAsync(DevicePointer *pointer, size_t bytes, void *stream) {
  return allocate(pointer, bytes, [=] { return pass_on("cuMemAllocAsync", pointer, bytes, stream); });
}
GPUMEM_EXPORT int cuMemAllocAsync_ptsz(DevicePointer *pointer, size_t bytes, void *stream) {
  return allocate(pointer, bytes, [=] { return pass_on("cuMemAllocAsync_ptsz", pointer, bytes, stream); });
}
GPUMEM_EXPORT int cuMemAllocFromPoolAsync(DevicePointer *pointer, size_t bytes, void *pool, void *stream) {
  return allocate_from(pool, pointer, bytes, [=] { return pass_on("cuMemAllocFromPoolAsync", pointer, bytes, pool, stream); });
}
GPUMEM_EXPORT int cuMemAllocFromPoolAsync_ptsz(DevicePointer *pointer, size_t bytes, void *pool, void *stream) {
  return allocate_from(pool, pointer, bytes, [=] { return pass_on("cuMemAllocFromPoolAsync_ptsz", pointer, bytes, pool, stream); });
}
GPUMEM_EXPORT int cuMemFreeAsync(DevicePointer pointer, void *stream) {
  return release(pointer, [=] { return pass_on("cuMemFreeAsync", pointer, stream); });
}
GPUMEM_EXPORT int cuMemFreeAsync_ptsz(DevicePointer pointer, void *stream) {
  return release(pointer, [=] { return pass_on("cuMemFreeAsync_ptsz", pointer, stream); });
}
GPUMEM_EXPORT int cuMemPoolCreate(void **pool, const PoolProperties *properties) {
  Metered metered;
  const int status = pass_on("cuMemPoolCreate", pool, properties);
  if (status == 0 && !metered.nested() && active()) remember_pool(*pool, *properties);
  return status;
}
GPUMEM_EXPORT int cuMemPoolDestroy(void *pool) {
  return release(reinterpret_cast<uint64_t>(pool) | kPoolKey, [=] { return pass_on("cuMemPoolDestroy", pool); });
}

// --- Physical memory behind expandable segments ---

// Memory of the host (location type not device) is not the device's.
GPUMEM_EXPORT int cuMemCreate(AllocationHandle *handle, size_t bytes, const AllocationProperties *properties, unsigned long long flags) {
  auto call = [=] { return pass_on("cuMemCreate", handle, bytes, properties, flags); };
  if (properties == nullptr || properties->location_type != kLocationDevice) return call();
  return allocate(handle, kHandleKey, properties->location_id, bytes, call);
}
GPUMEM_EXPORT int cuMemRelease(AllocationHandle handle) {
  return release(handle | kHandleKey, [=] { return pass_on("cuMemRelease", handle); });
}
GPUMEM_EXPORT int cuMemRetainAllocationHandle(AllocationHandle *handle, void *address) {
  Metered metered;
  const int status = pass_on("cuMemRetainAllocationHandle", handle, address);
  if (status == 0 && !metered.nested() && active()) retain(*handle);
  return status;
}
GPUMEM_EXPORT int cuMemMap(DevicePointer pointer, size_t bytes, size_t offset, AllocationHandle handle, unsigned long long flags) {
  Metered metered;
  const int status = pass_on("cuMemMap", pointer, bytes, offset, handle, flags);
  if (status == 0 && !metered.nested() && active()) mapped(pointer, bytes, handle);
  return status;
}
GPUMEM_EXPORT int cuMemUnmap(DevicePointer pointer, size_t bytes) {
  Metered metered;
  const int status = pass_on("cuMemUnmap", pointer, bytes);
  if (status == 0 && !metered.nested() && active()) unmapped(pointer, bytes);
  return status;
}

// --- Arrays ---

GPUMEM_EXPORT int cuArrayCreate_v2(void **array, const ArrayDescriptor *wanted) {
  const uint64_t bytes =
      wanted == nullptr ? 0 : array_bytes(element_bytes(wanted->format, wanted->channels), wanted->width, wanted->height, 0, 0);
  return allocate_array(array, bytes, [=] { return pass_on("cuArrayCreate_v2", array, wanted); });
}
GPUMEM_EXPORT int cuArray3DCreate_v2(void **array, const ArrayDescriptor3D *wanted) {
  const uint64_t bytes = wanted == nullptr ? 0 : array_bytes(element_bytes(wanted->format, wanted->channels), wanted->width, wanted->height,
                                                             wanted->depth, wanted->flags);
  return allocate_array(array, bytes, [=] { return pass_on("cuArray3DCreate_v2", array, wanted); });
}
GPUMEM_EXPORT int cuMipmappedArrayCreate(void **array, const ArrayDescriptor3D *wanted, unsigned levels) {
  const uint64_t bytes = wanted == nullptr ? 0 : mipmapped_bytes(element_bytes(wanted->format, wanted->channels), wanted->width,
                                                                 wanted->height, wanted->depth, levels, wanted->flags);
  return allocate_array(array, bytes, [=] { return pass_on("cuMipmappedArrayCreate", array, wanted, levels); });
}
GPUMEM_EXPORT int cuArrayDestroy(void *array) {
  return release(reinterpret_cast<uint64_t>(array), [=] { return pass_on("cuArrayDestroy", array); });
}
GPUMEM_EXPORT int cuMipmappedArrayDestroy(void *array) {
  return release(reinterpret_cast<uint64_t>(array), [=] { return pass_on("cuMipmappedArrayDestroy", array); });
}

}  // namespace gpumem::meter
