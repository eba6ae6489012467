// SPDX-License-Identifier: Apache-2.0
// The runtime's allocation functions (CUDA Runtime API, "Memory Management" and "Stream Ordered Memory Allocator").
// Runs in a job's processes; every function is passed on to the next library.
#include "estimator/meter/meter.h"

namespace gpumem::meter {
namespace {

int current_device() {
  int device = -1;
  return pass_on("cudaGetDevice", &device) == 0 ? device : -1;
}

// One metered allocation: `call` is the next library's, which leaves the address in *pointer.
template <class Call>
int allocate(void **pointer, uint64_t bytes, Call call) {
  Metered metered;
  if (metered.nested() || pointer == nullptr || !active()) return call();
  const int device = current_device();
  const uint64_t held = held_bytes(bytes);
  if (!charge(device, held)) {
    *pointer = nullptr;
    return kOutOfMemory;
  }
  const int status = call();
  if (status == 0 && *pointer != nullptr) {
    remember(reinterpret_cast<uint64_t>(*pointer), device, held);
  } else {
    give_back(device, held);
  }
  return status;
}

template <class Call>
int release(void *pointer, Call call) {
  Metered metered;
  if (!metered.nested() && active()) forget(reinterpret_cast<uint64_t>(pointer));
  return call();
}

struct PitchedPointer {  // struct cudaPitchedPtr
  void *pointer;
  size_t pitch, width, height;
};
struct Extent {  // struct cudaExtent
  size_t width, height, depth;
};
// Rows are padded to at most 512 bytes (cudaDeviceProp::texturePitchAlignment is 32, memory pitch 512 on all GPUs).
uint64_t pitched_bytes(uint64_t width, uint64_t rows) { return (width + 511) / 512 * 512 * rows; }

}  // namespace

GPUMEM_EXPORT int cudaMalloc(void **pointer, size_t bytes) {
  return allocate(pointer, bytes, [=] { return pass_on("cudaMalloc", pointer, bytes); });
}
GPUMEM_EXPORT int cudaMallocManaged(void **pointer, size_t bytes, unsigned flags) {
  return allocate(pointer, bytes, [=] { return pass_on("cudaMallocManaged", pointer, bytes, flags); });
}
GPUMEM_EXPORT int cudaMallocAsync(void **pointer, size_t bytes, void *stream) {
  return allocate(pointer, bytes, [=] { return pass_on("cudaMallocAsync", pointer, bytes, stream); });
}
GPUMEM_EXPORT int cudaMallocFromPoolAsync(void **pointer, size_t bytes, void *pool, void *stream) {
  return allocate(pointer, bytes, [=] { return pass_on("cudaMallocFromPoolAsync", pointer, bytes, pool, stream); });
}
GPUMEM_EXPORT int cudaMallocPitch(void **pointer, size_t *pitch, size_t width, size_t height) {
  return allocate(pointer, pitched_bytes(width, height),
                  [=] { return pass_on("cudaMallocPitch", pointer, pitch, width, height); });
}
GPUMEM_EXPORT int cudaMalloc3D(PitchedPointer *pitched, Extent extent) {
  return allocate(pitched == nullptr ? nullptr : &pitched->pointer, pitched_bytes(extent.width, extent.height * extent.depth),
                  [=] { return pass_on("cudaMalloc3D", pitched, extent); });
}
GPUMEM_EXPORT int cudaFree(void *pointer) {
  return release(pointer, [=] { return pass_on("cudaFree", pointer); });
}
GPUMEM_EXPORT int cudaFreeAsync(void *pointer, void *stream) {
  return release(pointer, [=] { return pass_on("cudaFreeAsync", pointer, stream); });
}
GPUMEM_EXPORT int cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
  const int status = pass_on("cudaMemGetInfo", free_bytes, total_bytes);
  if (status == 0 && active()) limit_memory_info(current_device(), free_bytes, total_bytes);
  return status;
}

}  // namespace gpumem::meter
