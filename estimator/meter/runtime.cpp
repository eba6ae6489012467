// SPDX-License-Identifier: Apache-2.0
// The runtime's allocation functions (CUDA Runtime API, "Memory Management" and "Stream Ordered Memory Allocator").
// Runs in a job's processes; every function is passed on to the next library. Names that end with _ptsz are what programs call that are
// compiled for per-thread default streams.
#include "estimator/meter/arrays.h"
#include "estimator/meter/meter.h"

namespace gpumem::meter {
namespace {

int current_device() {
  int device = -1;
  return pass_on("cudaGetDevice", &device) == 0 ? device : -1;
}

// One metered allocation: `call` is the next library's, which leaves the address or handle in *made.
template <class Call>
int allocate(void **made, int device, uint64_t bytes, Call call) {
  const uint64_t held = held_bytes(bytes);
  if (!charge(device, held)) {
    *made = nullptr;
    return kOutOfMemory;
  }
  const int status = call();
  if (status == 0 && *made != nullptr) {
    remember(reinterpret_cast<uint64_t>(*made), device, held);
  } else {
    give_back(device, held);
  }
  return status;
}
template <class Call>
int allocate(void **made, uint64_t bytes, Call call) {
  Metered metered;
  if (metered.nested() || made == nullptr || !active()) return call();
  return allocate(made, current_device(), bytes, call);
}
template <class Call>
int allocate_from(const void *pool, void **made, uint64_t bytes, Call call) {
  Metered metered;
  if (metered.nested() || made == nullptr || !active()) return call();
  const int device = device_of(reinterpret_cast<uint64_t>(pool) | kPoolKey, kUnknown);
  return allocate(made, device == kUnknown ? current_device() : device, bytes, call);
}

template <class Call>
int release(const void *made, Call call) {
  Metered metered;
  if (!metered.nested() && active()) forget(reinterpret_cast<uint64_t>(made));
  return call();
}

struct PitchedPointer {  // struct cudaPitchedPtr
  void *pointer;
  size_t pitch, width, height;
};
struct Extent {  // struct cudaExtent
  size_t width, height, depth;
};
struct Channels {  // struct cudaChannelFormatDesc: bits of each channel
  int x, y, z, w, kind;
};
uint64_t element_bytes(const Channels *channels) {
  return channels == nullptr ? 0 : static_cast<uint64_t>(channels->x + channels->y + channels->z + channels->w) / 8;
}

}  // namespace

GPUMEM_EXPORT int cudaMalloc(void **pointer, size_t bytes) {
  return allocate(pointer, bytes, [=] { return pass_on("cudaMalloc", pointer, bytes); });
}
GPUMEM_EXPORT int cudaMallocManaged(void **pointer, size_t bytes, unsigned flags) {
  return allocate(pointer, bytes, [=] { return pass_on("cudaMallocManaged", pointer, bytes, flags); });
}
GPUMEM_EXPORT int cudaMallocPitch(void **pointer, size_t *pitch, size_t width, size_t height) {
  return allocate(pointer, pitched_bytes(width, height), [=] { return pass_on("cudaMallocPitch", pointer, pitch, width, height); });
}
GPUMEM_EXPORT int cudaMalloc3D(PitchedPointer *pitched, Extent extent) {
  return allocate(pitched == nullptr ? nullptr : &pitched->pointer, pitched_bytes(extent.width, extent.height * extent.depth),
                  [=] { return pass_on("cudaMalloc3D", pitched, extent); });
}
GPUMEM_EXPORT int cudaFree(void *pointer) {
  return release(pointer, [=] { return pass_on("cudaFree", pointer); });
}

// --- Stream-ordered ---

GPUMEM_EXPORT int cudaMallocAsync(void **pointer, size_t bytes, void *stream) {
  return allocate(pointer, bytes, [=] { return pass_on("cudaMallocAsync", pointer, bytes, stream); });
}
GPUMEM_EXPORT int cudaMallocAsync_ptsz(void **pointer, size_t bytes, void *stream) {
  return allocate(pointer, bytes, [=] { return pass_on("cudaMallocAsync_ptsz", pointer, bytes, stream); });
}
GPUMEM_EXPORT int cudaMallocFromPoolAsync(void **pointer, size_t bytes, void *pool, void *stream) {
  return allocate_from(pool, pointer, bytes, [=] { return pass_on("cudaMallocFromPoolAsync", pointer, bytes, pool, stream); });
}
GPUMEM_EXPORT int cudaMallocFromPoolAsync_ptsz(void **pointer, size_t bytes, void *pool, void *stream) {
  return allocate_from(pool, pointer, bytes, [=] { return pass_on("cudaMallocFromPoolAsync_ptsz", pointer, bytes, pool, stream); });
}
GPUMEM_EXPORT int cudaFreeAsync(void *pointer, void *stream) {
  return release(pointer, [=] { return pass_on("cudaFreeAsync", pointer, stream); });
}
GPUMEM_EXPORT int cudaFreeAsync_ptsz(void *pointer, void *stream) {
  return release(pointer, [=] { return pass_on("cudaFreeAsync_ptsz", pointer, stream); });
}
GPUMEM_EXPORT int cudaMemPoolCreate(void **pool, const PoolProperties *properties) {
  Metered metered;
  const int status = pass_on("cudaMemPoolCreate", pool, properties);
  if (status == 0 && !metered.nested() && active()) remember_pool(*pool, *properties);
  return status;
}
GPUMEM_EXPORT int cudaMemPoolDestroy(void *pool) {
  return release(reinterpret_cast<void *>(reinterpret_cast<uint64_t>(pool) | kPoolKey), [=] { return pass_on("cudaMemPoolDestroy", pool); });
}

// --- Arrays ---

GPUMEM_EXPORT int cudaMallocArray(void **array, const Channels *channels, size_t width, size_t height, unsigned flags) {
  return allocate(array, array_bytes(element_bytes(channels), width, height, 0, flags),
                  [=] { return pass_on("cudaMallocArray", array, channels, width, height, flags); });
}
GPUMEM_EXPORT int cudaMalloc3DArray(void **array, const Channels *channels, Extent extent, unsigned flags) {
  return allocate(array, array_bytes(element_bytes(channels), extent.width, extent.height, extent.depth, flags),
                  [=] { return pass_on("cudaMalloc3DArray", array, channels, extent, flags); });
}
GPUMEM_EXPORT int cudaMallocMipmappedArray(void **array, const Channels *channels, Extent extent, unsigned levels, unsigned flags) {
  return allocate(array, mipmapped_bytes(element_bytes(channels), extent.width, extent.height, extent.depth, levels, flags),
                  [=] { return pass_on("cudaMallocMipmappedArray", array, channels, extent, levels, flags); });
}
GPUMEM_EXPORT int cudaFreeArray(void *array) {
  return release(array, [=] { return pass_on("cudaFreeArray", array); });
}
GPUMEM_EXPORT int cudaFreeMipmappedArray(void *array) {
  return release(array, [=] { return pass_on("cudaFreeMipmappedArray", array); });
}

GPUMEM_EXPORT int cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
  const int status = pass_on("cudaMemGetInfo", free_bytes, total_bytes);
  if (status == 0 && active()) limit_memory_info(current_device(), free_bytes, total_bytes);
  return status;
}

}  // namespace gpumem::meter
