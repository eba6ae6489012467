// SPDX-License-Identifier: Apache-2.0
// CUDA driver: memory and semaphores of other APIs, pools of other processes, multicast objects. Part of libgpumem_vgpu.so.

#include "estimator/virtual_gpu/device/external.h"
#include "estimator/virtual_gpu/device/multicast.h"
#include "estimator/virtual_gpu/device/pool_sharing.h"
#include "estimator/virtual_gpu/driver/driver.h"

namespace {

struct Mipmaps {  // CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC
  unsigned long long offset;
  size_t width, height, depth;
  unsigned format, channels, flags, levels;
};

}  // namespace

GPUMEM_EXPORT int cuImportExternalMemory(void **memory, const ExternalMemoryHandle *wanted) {
  return wanted == nullptr ? cuda::kInvalidValue : import_external_memory(wanted->type, wanted->handle.descriptor, wanted->size, memory);
}
GPUMEM_EXPORT int cuExternalMemoryGetMappedBuffer(uint64_t *pointer, void *memory, const ExternalBuffer *wanted) {
  if (pointer == nullptr || wanted == nullptr || wanted->flags != 0) return cuda::kInvalidValue;
  void *made = nullptr;
  const Error error = map_external_buffer(memory, wanted->offset, wanted->size, &made);
  *pointer = reinterpret_cast<uint64_t>(made);
  return error;
}
GPUMEM_EXPORT int cuExternalMemoryGetMappedMipmappedArray(void **mipmapped, void *memory, const Mipmaps *wanted) {
  Channels channels;
  if (mipmapped == nullptr || wanted == nullptr || !channels_of(wanted->format, wanted->channels, &channels)) return cuda::kInvalidValue;
  return map_external_mipmaps(memory, wanted->offset, channels, {wanted->width, wanted->height, wanted->depth}, wanted->levels, wanted->flags, mipmapped);
}
GPUMEM_EXPORT int cuDestroyExternalMemory(void *memory) { return destroy_external_memory(memory); }

GPUMEM_EXPORT int cuImportExternalSemaphore(void **semaphore, const ExternalSemaphoreHandle *wanted) {
  return wanted == nullptr ? cuda::kInvalidValue : import_external_semaphore(wanted->type, wanted->handle.descriptor, semaphore);
}
GPUMEM_EXPORT int cuSignalExternalSemaphoresAsync(void *const *semaphores, const void *parameters, unsigned count, Stream stream) {
  return queue_external_semaphores(semaphores, parameters, count, stream);
}
DRIVER_ALIAS(cuSignalExternalSemaphoresAsync_ptsz, cuSignalExternalSemaphoresAsync);
GPUMEM_EXPORT int cuWaitExternalSemaphoresAsync(void *const *semaphores, const void *parameters, unsigned count, Stream stream) {
  return queue_external_semaphores(semaphores, parameters, count, stream);
}
DRIVER_ALIAS(cuWaitExternalSemaphoresAsync_ptsz, cuWaitExternalSemaphoresAsync);
GPUMEM_EXPORT int cuDestroyExternalSemaphore(void *semaphore) { return destroy_external_semaphore(semaphore); }

// --- Pools ---

GPUMEM_EXPORT int cuMemPoolExportToShareableHandle(void *shared, void *pool, int type, unsigned long long flags) {
  return flags != 0 ? cuda::kInvalidValue : export_pool(find_pool(pool), type, static_cast<int *>(shared));
}
GPUMEM_EXPORT int cuMemPoolImportFromShareableHandle(void **pool, void *shared, int type, unsigned long long flags) {
  const Error error = check_ready();
  if (error != cuda::kSuccess) return error;
  return flags != 0 ? cuda::kInvalidValue : import_pool(type, static_cast<int>(reinterpret_cast<intptr_t>(shared)), pool);
}
GPUMEM_EXPORT int cuMemPoolExportPointer(PoolPointer *shared, uint64_t pointer) { return export_pool_pointer(shared, reinterpret_cast<void *>(pointer)); }
GPUMEM_EXPORT int cuMemPoolImportPointer(uint64_t *pointer, void *pool, const PoolPointer *shared) {
  if (pointer == nullptr || shared == nullptr) return cuda::kInvalidValue;
  void *made = nullptr;
  const Error error = import_pool_pointer(find_pool(pool), *shared, &made);
  *pointer = reinterpret_cast<uint64_t>(made);
  return error;
}

// --- Multicast ---

GPUMEM_EXPORT int cuMulticastCreate(uint64_t *object, const MulticastProperties *properties) {
  const Error error = check_ready();
  if (error != cuda::kSuccess) return error;
  if (object == nullptr || properties == nullptr) return cuda::kInvalidValue;
  Physical *made = nullptr;
  const Error result = create_multicast(*properties, &made);
  *object = reinterpret_cast<uint64_t>(made);
  return result;
}
GPUMEM_EXPORT int cuMulticastAddDevice(uint64_t object, int device) { return add_multicast_device(find_physical(object), device); }
GPUMEM_EXPORT int cuMulticastBindMem_v2(uint64_t object, int device, size_t offset, uint64_t memory, size_t memory_offset, size_t size, unsigned long long flags) {
  return flags != 0 ? cuda::kInvalidValue : bind_multicast(find_physical(object), device, offset, find_physical(memory), memory_offset, size);
}
GPUMEM_EXPORT int cuMulticastBindMem(uint64_t object, size_t offset, uint64_t memory, size_t memory_offset, size_t size, unsigned long long flags) {
  return cuMulticastBindMem_v2(object, -1, offset, memory, memory_offset, size, flags);
}
GPUMEM_EXPORT int cuMulticastBindAddr_v2(uint64_t object, int device, size_t offset, uint64_t pointer, size_t size, unsigned long long flags) {
  const Range range = find_range(reinterpret_cast<void *>(pointer));
  if (range.kind != RangeKind::mapped || flags != 0) return cuda::kInvalidValue;
  return bind_multicast(find_physical(object), device, offset, static_cast<Physical *>(range.owner), pointer - range.start, size);
}
GPUMEM_EXPORT int cuMulticastBindAddr(uint64_t object, size_t offset, uint64_t pointer, size_t size, unsigned long long flags) {
  return cuMulticastBindAddr_v2(object, -1, offset, pointer, size, flags);
}
GPUMEM_EXPORT int cuMulticastUnbind(uint64_t object, int device, size_t offset, size_t size) {
  return unbind_multicast(find_physical(object), device, offset, size);
}
GPUMEM_EXPORT int cuMulticastGetGranularity(size_t *granularity, const MulticastProperties *properties, int) {
  if (granularity == nullptr || properties == nullptr) return cuda::kInvalidValue;
  *granularity = kGranularity;
  return check_ready();
}
