// SPDX-License-Identifier: Apache-2.0
// CUDA driver: copies and hints in batches, pools by location. Part of libgpumem_vgpu.so, preloaded into jobs.
// The runtime's functions do the same with the same arguments; only the first version of a batch says which of its copies failed.

#include "estimator/virtual_gpu/driver/driver.h"

extern "C" {
int cuMemcpyAsync(uint64_t, uint64_t, size_t, Stream);
int cudaMemPrefetchBatchAsync(void **, size_t *, size_t, void *, size_t *, size_t, unsigned long long, Stream);
int cudaMemDiscardBatchAsync(void **, size_t *, size_t, unsigned long long, Stream);
int cudaMemGetDefaultMemPool(void **, cuda::MemoryLocation *, int);
int cudaMemGetMemPool(void **, cuda::MemoryLocation *, int);
int cudaMemSetMemPool(cuda::MemoryLocation *, int, void *);
}

namespace {

// The runtime keeps an error for cudaGetLastError; the driver does not.
template <class Call>
int unseen(const Call &call) {
  const int before = thread_state.last_error;
  const int error = call();
  thread_state.last_error = before;
  return error;
}

int copy_batch(const uint64_t *to, const uint64_t *from, const size_t *bytes, size_t count, Stream stream, size_t *failed) {
  const Error error = check_stream(stream);
  if (error != cuda::kSuccess) return error;
  if (to == nullptr || from == nullptr || bytes == nullptr || count == 0) return cuda::kInvalidValue;
  for (size_t n = 0; n < count; ++n) {
    const int result = cuMemcpyAsync(to[n], from[n], bytes[n], stream);
    if (result == cuda::kSuccess) continue;
    if (failed != nullptr) *failed = n;
    return result;
  }
  return cuda::kSuccess;
}

}  // namespace

GPUMEM_EXPORT int cuMemcpyBatchAsync(uint64_t *to, uint64_t *from, size_t *bytes, size_t count, void *, size_t *, size_t, size_t *failed, Stream stream) {
  return copy_batch(to, from, bytes, count, stream, failed);
}
DRIVER_ALIAS(cuMemcpyBatchAsync_ptsz, cuMemcpyBatchAsync);
GPUMEM_EXPORT int cuMemcpyBatchAsync_v2(uint64_t *to, uint64_t *from, size_t *bytes, size_t count, void *, size_t *, size_t, Stream stream) {
  return copy_batch(to, from, bytes, count, stream, nullptr);
}
DRIVER_ALIAS(cuMemcpyBatchAsync_v2_ptsz, cuMemcpyBatchAsync_v2);
GPUMEM_EXPORT int cuMemcpyWithAttributesAsync(uint64_t to, uint64_t from, size_t bytes, void *, Stream stream) { return cuMemcpyAsync(to, from, bytes, stream); }
DRIVER_ALIAS(cuMemcpyWithAttributesAsync_ptsz, cuMemcpyWithAttributesAsync);

GPUMEM_EXPORT int cuMemPrefetchBatchAsync(uint64_t *pointers, size_t *bytes, size_t count, void *a, size_t *b, size_t c, unsigned long long flags, Stream stream) {
  return unseen([=] { return cudaMemPrefetchBatchAsync(reinterpret_cast<void **>(pointers), bytes, count, a, b, c, flags, stream); });
}
DRIVER_ALIAS(cuMemPrefetchBatchAsync_ptsz, cuMemPrefetchBatchAsync);
GPUMEM_EXPORT int cuMemDiscardBatchAsync(uint64_t *pointers, size_t *bytes, size_t count, unsigned long long flags, Stream stream) {
  return unseen([=] { return cudaMemDiscardBatchAsync(reinterpret_cast<void **>(pointers), bytes, count, flags, stream); });
}
DRIVER_ALIAS(cuMemDiscardBatchAsync_ptsz, cuMemDiscardBatchAsync);
GPUMEM_EXPORT int cuMemDiscardAndPrefetchBatchAsync(uint64_t *pointers, size_t *bytes, size_t count, void *, size_t *, size_t, unsigned long long flags, Stream stream) {
  return cuMemDiscardBatchAsync(pointers, bytes, count, flags, stream);
}
DRIVER_ALIAS(cuMemDiscardAndPrefetchBatchAsync_ptsz, cuMemDiscardAndPrefetchBatchAsync);

GPUMEM_EXPORT int cuMemGetDefaultMemPool(void **pool, cuda::MemoryLocation *location, int type) {
  return unseen([=] { return cudaMemGetDefaultMemPool(pool, location, type); });
}
GPUMEM_EXPORT int cuMemGetMemPool(void **pool, cuda::MemoryLocation *location, int type) {
  return unseen([=] { return cudaMemGetMemPool(pool, location, type); });
}
GPUMEM_EXPORT int cuMemSetMemPool(cuda::MemoryLocation *location, int type, void *pool) {
  return unseen([=] { return cudaMemSetMemPool(location, type, pool); });
}
