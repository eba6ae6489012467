// SPDX-License-Identifier: Apache-2.0
// CUDA runtime: what newer programs use beside the main calls: libraries of kernels, copies and hints in batches, attributes,
// pools by location. Part of libgpumem_vgpu.so, preloaded into jobs.

#include <string.h>

#include "estimator/virtual_gpu/device/contents.h"
#include "estimator/virtual_gpu/device/pools.h"
#include "estimator/virtual_gpu/runtime/runtime.h"

// The driver's functions have the same arguments.
extern "C" {
int cuLibraryLoadData(void **, const void *, int *, void **, unsigned, int *, void **, unsigned);
int cuLibraryLoadFromFile(void **, const char *, int *, void **, unsigned, int *, void **, unsigned);
int cuLibraryUnload(void *);
int cuLibraryGetKernel(void **, void *, const char *);
int cuLibraryGetGlobal(uint64_t *, size_t *, void *, const char *);
int cuMemRangeGetAttribute(void *, size_t, int, uint64_t, size_t);
int cuMemRangeGetAttributes(void **, const size_t *, const int *, size_t, uint64_t, size_t);
int cudaMemcpyAsync(void *, const void *, size_t, int, Stream);
int cudaMemset2DAsync(void *, size_t, int, size_t, size_t, Stream);
}

static int as_runtime(int error) { return done(static_cast<Error>(error)); }
static int give(Error error, void *to, const void *value, size_t bytes) {
  if (error == cuda::kSuccess && to == nullptr) error = cuda::kInvalidValue;
  if (error == cuda::kSuccess) memcpy(to, value, bytes);
  return done(error);
}

GPUMEM_EXPORT int cudaLibraryLoadData(void **library, const void *code, int *a, void **b, unsigned c, int *d, void **e, unsigned f) {
  return as_runtime(cuLibraryLoadData(library, code, a, b, c, d, e, f));
}
GPUMEM_EXPORT int cudaLibraryLoadFromFile(void **library, const char *path, int *a, void **b, unsigned c, int *d, void **e, unsigned f) {
  return as_runtime(cuLibraryLoadFromFile(library, path, a, b, c, d, e, f));
}
GPUMEM_EXPORT int cudaLibraryUnload(void *library) { return as_runtime(cuLibraryUnload(library)); }
GPUMEM_EXPORT int cudaLibraryGetKernel(void **kernel, void *library, const char *name) { return as_runtime(cuLibraryGetKernel(kernel, library, name)); }
GPUMEM_EXPORT int cudaLibraryGetGlobal(void **pointer, size_t *bytes, void *library, const char *name) {
  return as_runtime(cuLibraryGetGlobal(reinterpret_cast<uint64_t *>(pointer), bytes, library, name));
}

// Managed variables are device memory here as others are.
GPUMEM_EXPORT int cudaLibraryGetManaged(void **pointer, size_t *bytes, void *library, const char *name) {
  return cudaLibraryGetGlobal(pointer, bytes, library, name);
}

GPUMEM_EXPORT int cudaStreamGetAttribute(Stream stream, int, void *value) {
  const char zeros[64] = {};  // cudaLaunchAttributeValue: nothing is set
  return give(check_stream(stream), value, zeros, sizeof(zeros));
}

GPUMEM_EXPORT int cudaMemRangeGetAttribute(void *data, size_t bytes, int attribute, const void *pointer, size_t count) {
  return as_runtime(cuMemRangeGetAttribute(data, bytes, attribute, reinterpret_cast<uint64_t>(pointer), count));
}
GPUMEM_EXPORT int cudaMemRangeGetAttributes(void **data, size_t *bytes, int *attributes, size_t many, const void *pointer, size_t count) {
  return as_runtime(cuMemRangeGetAttributes(data, bytes, attributes, many, reinterpret_cast<uint64_t>(pointer), count));
}

// --- What a device cannot do, or not measured ---

// Bits of what is supported of each operation: none, as on a device whose links carry no atomics (device/facts.cpp says so, too).
GPUMEM_EXPORT int cudaDeviceGetHostAtomicCapabilities(unsigned *capabilities, const int *operations, unsigned count, int device) {
  if (capabilities == nullptr || operations == nullptr || count == 0) return done(cuda::kInvalidValue);
  const Error error = device < 0 || device >= visible_device_count() ? cuda::kInvalidDevice : check_ready();
  if (error == cuda::kSuccess) memset(capabilities, 0, count * sizeof(*capabilities));
  return done(error);
}
GPUMEM_EXPORT int cudaDeviceGetP2PAtomicCapabilities(unsigned *capabilities, const int *operations, unsigned count, int from, int to) {
  if (to < 0 || to >= visible_device_count() || to == from) return done(cuda::kInvalidDevice);
  return cudaDeviceGetHostAtomicCapabilities(capabilities, operations, count, from);
}

// --- Batches ---

static int copy_batch(void *const *to, const void *const *from, const size_t *bytes, size_t count, Stream stream, size_t *failed) {
  const Error error = check_stream(stream);
  if (error != cuda::kSuccess) return done(error);
  if (to == nullptr || from == nullptr || bytes == nullptr || count == 0) return done(cuda::kInvalidValue);
  for (size_t n = 0; n < count; ++n) {
    const int result = cudaMemcpyAsync(to[n], from[n], bytes[n], cuda::kDefaultKind, stream);
    if (result == cuda::kSuccess) continue;
    if (failed != nullptr) *failed = n;
    return result;
  }
  return cuda::kSuccess;
}
VERSIONED(cudaMemcpyBatchAsync, CUDA12)
int cudaMemcpyBatchAsync_cuda12(void **to, void **from, size_t *bytes, size_t count, void *, size_t *, size_t, size_t *failed, Stream stream) {
  return copy_batch(to, from, bytes, count, stream, failed);
}
VERSIONED(cudaMemcpyBatchAsync, CUDA13)
int cudaMemcpyBatchAsync_cuda13(void *const *to, const void *const *from, const size_t *bytes, size_t count, void *, size_t *, size_t, Stream stream) {
  return copy_batch(to, from, bytes, count, stream, nullptr);
}
GPUMEM_EXPORT int cudaMemcpyWithAttributesAsync(void *to, const void *from, size_t bytes, void *, Stream stream) {
  return cudaMemcpyAsync(to, from, bytes, cuda::kDefaultKind, stream);
}
GPUMEM_EXPORT int cudaMemcpyWithAttributesAsync_ptsz(void *to, const void *from, size_t bytes, void *, Stream stream) {
  return cudaMemcpyAsync(to, from, bytes, cuda::kDefaultKind, stream);
}
// Hints change nothing here (Note [Managed memory] in device/memory.h).
static int hint(void *const *pointers, const size_t *bytes, size_t count, Stream stream) {
  Error error = check_stream(stream);
  if (error == cuda::kSuccess && (pointers == nullptr || bytes == nullptr)) error = cuda::kInvalidValue;
  for (size_t n = 0; error == cuda::kSuccess && n < count; ++n) error = check_access(pointers[n], bytes[n], true);
  return done(error);
}
GPUMEM_EXPORT int cudaMemPrefetchBatchAsync(void **pointers, size_t *bytes, size_t count, void *, size_t *, size_t, unsigned long long, Stream stream) {
  return hint(pointers, bytes, count, stream);
}
GPUMEM_EXPORT int cudaMemDiscardBatchAsync(void **pointers, size_t *bytes, size_t count, unsigned long long, Stream stream) {
  const int error = hint(pointers, bytes, count, stream);
  for (size_t n = 0; error == cuda::kSuccess && n < count; ++n) forget_contents(pointers[n], bytes[n]);
  return error;
}
GPUMEM_EXPORT int cudaMemDiscardAndPrefetchBatchAsync(void **pointers, size_t *bytes, size_t count, void *, size_t *, size_t, unsigned long long flags, Stream stream) {
  return cudaMemDiscardBatchAsync(pointers, bytes, count, flags, stream);
}

GPUMEM_EXPORT int cudaMemset3DAsync(cuda::PitchedPointer to, int value, cuda::Extent extent, Stream stream) {
  if (extent.width == 0 || extent.height == 0 || extent.depth == 0) return done(check_stream(stream));
  if (extent.height > to.ysize && extent.depth > 1) return done(cuda::kInvalidValue);
  for (size_t z = 0; z < extent.depth; ++z) {
    const int error = cudaMemset2DAsync(static_cast<char *>(to.ptr) + z * to.ysize * to.pitch, to.pitch, value, extent.width, extent.height, stream);
    if (error != cuda::kSuccess) return error;
  }
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cudaMemset3D(cuda::PitchedPointer to, int value, cuda::Extent extent) { return cudaMemset3DAsync(to, value, extent, nullptr); }

// --- Pools by location (CUDA 13): 1 pinned, 2 managed ---

static int pool_at(void **pool, const cuda::MemoryLocation *location, Pool *(*of_device)(int)) {
  const Error error = check_ready();
  if (error != cuda::kSuccess) return done(error);
  if (pool == nullptr || location == nullptr) return done(cuda::kInvalidValue);
  const bool device = location->type == cuda::kLocationDevice;
  if (device && (location->id < 0 || location->id >= state.visible_count)) return done(cuda::kInvalidDevice);
  *pool = device ? of_device(location->id) : host_pool();
  return done(*pool != nullptr ? cuda::kSuccess : cuda::kOperatingSystem);
}
GPUMEM_EXPORT int cudaMemGetDefaultMemPool(void **pool, cuda::MemoryLocation *location, int) { return pool_at(pool, location, default_pool); }
GPUMEM_EXPORT int cudaMemGetMemPool(void **pool, cuda::MemoryLocation *location, int) { return pool_at(pool, location, current_pool); }
GPUMEM_EXPORT int cudaMemSetMemPool(cuda::MemoryLocation *location, int, void *handle) {
  Pool *pool = find_pool(handle);
  if (pool == nullptr || location == nullptr || location->type != cuda::kLocationDevice || location->id < 0 || location->id >= visible_device_count())
    return done(cuda::kInvalidValue);
  return done(set_current_pool(location->id, pool));
}
extern "C" {
int cudaDeviceGetLimit(size_t *, int);
int cudaDeviceSetLimit(int, size_t);
int cudaDeviceGetCacheConfig(int *);
int cudaDeviceSetCacheConfig(int);
}
GPUMEM_EXPORT int cudaThreadGetLimit(size_t *value, int limit) { return cudaDeviceGetLimit(value, limit); }
GPUMEM_EXPORT int cudaThreadSetLimit(int limit, size_t value) { return cudaDeviceSetLimit(limit, value); }
GPUMEM_EXPORT int cudaThreadGetCacheConfig(int *config) { return cudaDeviceGetCacheConfig(config); }
GPUMEM_EXPORT int cudaThreadSetCacheConfig(int config) { return cudaDeviceSetCacheConfig(config); }
GPUMEM_EXPORT int cudaProfilerInitialize(const char *, const char *, int) { return done(check_ready()); }
