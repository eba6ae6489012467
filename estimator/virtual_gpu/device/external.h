// SPDX-License-Identifier: Apache-2.0
// Memory and semaphores of others: what another API or process made and a program imports by descriptor. Part of libgpumem_vgpu.so.
//
// On a virtual GPU no other API (Vulkan, NvSci) can make device memory, so the only descriptors that are memory are ours: those of
// cuMemExportToShareableHandle. Any other is refused (invalid handle). What is mapped costs nothing in the book (its owner
// pays) and has the owner's small contents: Note [Shared contents] in shared.h. As in CUDA, a descriptor that was imported belongs to
// CUDA from then on, and mapped buffers are given back by cudaFree, arrays by cudaFreeMipmappedArray.
// A semaphore has no state here: work is done when it is queued, and who signals is another API. Any open descriptor is one.
#pragma once

#include "estimator/virtual_gpu/device/arrays.h"
#include "estimator/virtual_gpu/device/memory.h"

namespace gpumem::virtual_gpu {

// cudaExternalMemoryHandleType, cudaExternalSemaphoreHandleType: the same numbers in the driver.
constexpr int kOpaqueDescriptor = 1, kLastMemoryType = 8, kTimelineDescriptor = 9, kLastSemaphoreType = 10;

// The same in both interfaces: cudaExternalMemoryHandleDesc, cudaExternalMemoryBufferDesc, cudaExternalSemaphoreHandleDesc.
struct ExternalMemoryHandle {
  int type;
  union {
    int descriptor;
    void *words[2];
  } handle;
  unsigned long long size;
  unsigned flags;
};
struct ExternalBuffer {
  unsigned long long offset, size;
  unsigned flags;
};
struct ExternalSemaphoreHandle {
  int type;
  union {
    int descriptor;
    void *words[2];
  } handle;
  unsigned flags;
};

Error import_external_memory(int type, int descriptor, uint64_t size, void **memory);
Error map_external_buffer(const void *memory, uint64_t offset, uint64_t size, void **pointer);
Error map_external_mipmaps(const void *memory, uint64_t offset, const Channels &channels, const cuda::Extent &extent, unsigned levels,
                           unsigned flags, void **mipmapped);
Error destroy_external_memory(void *memory);

Error import_external_semaphore(int type, int descriptor, void **semaphore);
// Signals or waits for all of them on the stream.
Error queue_external_semaphores(void *const *semaphores, const void *parameters, unsigned count, Stream stream);
bool is_external_semaphore(const void *semaphore);
Error destroy_external_semaphore(void *semaphore);

// A part of a memory file, mapped without charge as external memory of that device; what lies before a page's end is rounded.
Error map_external(int descriptor, uint64_t offset, uint64_t size, int device, void **pointer);
// The same without anybody's contents: an array in external memory has a layout that only its owner knows.
Error map_uncharged(int device, uint64_t size, void **pointer);
// cudaFree of such memory.
Error unmap_external(void *pointer);

}  // namespace gpumem::virtual_gpu
