// SPDX-License-Identifier: Apache-2.0
// CUDA runtime: memory and semaphores of other APIs, pools of other processes. Part of libgpumem_vgpu.so, preloaded into jobs.

#include "estimator/virtual_gpu/device/external.h"
#include "estimator/virtual_gpu/device/pool_sharing.h"
#include "estimator/virtual_gpu/runtime/runtime.h"

namespace {

struct Mipmaps {  // cudaExternalMemoryMipmappedArrayDesc
  unsigned long long offset;
  Channels channels;
  cuda::Extent extent;
  unsigned flags, levels;
};

}  // namespace

GPUMEM_EXPORT int cudaImportExternalMemory(void **memory, const ExternalMemoryHandle *wanted) {
  return done(wanted == nullptr ? cuda::kInvalidValue : import_external_memory(wanted->type, wanted->handle.descriptor, wanted->size, memory));
}
GPUMEM_EXPORT int cudaExternalMemoryGetMappedBuffer(void **pointer, void *memory, const ExternalBuffer *wanted) {
  if (wanted == nullptr || wanted->flags != 0) return done(cuda::kInvalidValue);
  return done(map_external_buffer(memory, wanted->offset, wanted->size, pointer));
}
GPUMEM_EXPORT int cudaExternalMemoryGetMappedMipmappedArray(void **mipmapped, void *memory, const Mipmaps *wanted) {
  if (wanted == nullptr) return done(cuda::kInvalidValue);
  return done(map_external_mipmaps(memory, wanted->offset, wanted->channels, wanted->extent, wanted->levels, wanted->flags, mipmapped));
}
GPUMEM_EXPORT int cudaDestroyExternalMemory(void *memory) { return done(destroy_external_memory(memory)); }

GPUMEM_EXPORT int cudaImportExternalSemaphore(void **semaphore, const ExternalSemaphoreHandle *wanted) {
  return done(wanted == nullptr ? cuda::kInvalidValue : import_external_semaphore(wanted->type, wanted->handle.descriptor, semaphore));
}
GPUMEM_EXPORT int cudaDestroyExternalSemaphore(void *semaphore) { return done(destroy_external_semaphore(semaphore)); }
// With or without _v2 (CUDA 11's parameters are smaller), and by the names for per-thread default streams: only the handles are looked at.
#define QUEUED(name)                                                                                                     \
  GPUMEM_EXPORT int name(void *const *semaphores, const void *parameters, unsigned count, Stream stream) {               \
    return done(queue_external_semaphores(semaphores, parameters, count, stream));                                       \
  }
QUEUED(cudaSignalExternalSemaphoresAsync)
QUEUED(cudaSignalExternalSemaphoresAsync_ptsz)
QUEUED(cudaSignalExternalSemaphoresAsync_v2)
QUEUED(cudaSignalExternalSemaphoresAsync_v2_ptsz)
QUEUED(cudaWaitExternalSemaphoresAsync)
QUEUED(cudaWaitExternalSemaphoresAsync_ptsz)
QUEUED(cudaWaitExternalSemaphoresAsync_v2)
QUEUED(cudaWaitExternalSemaphoresAsync_v2_ptsz)
#undef QUEUED

GPUMEM_EXPORT int cudaMemPoolExportToShareableHandle(void *shared, void *pool, int type, unsigned flags) {
  return done(flags != 0 ? cuda::kInvalidValue : export_pool(find_pool(pool), type, static_cast<int *>(shared)));
}
GPUMEM_EXPORT int cudaMemPoolImportFromShareableHandle(void **pool, void *shared, int type, unsigned flags) {
  const Error error = check_ready();
  if (error != cuda::kSuccess) return done(error);
  return done(flags != 0 ? cuda::kInvalidValue : import_pool(type, static_cast<int>(reinterpret_cast<intptr_t>(shared)), pool));
}
GPUMEM_EXPORT int cudaMemPoolExportPointer(PoolPointer *shared, void *pointer) { return done(export_pool_pointer(shared, pointer)); }
GPUMEM_EXPORT int cudaMemPoolImportPointer(void **pointer, void *pool, const PoolPointer *shared) {
  return done(shared == nullptr ? cuda::kInvalidValue : import_pool_pointer(find_pool(pool), *shared, pointer));
}
