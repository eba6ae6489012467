// SPDX-License-Identifier: Apache-2.0
// CUDA driver: fills by elements of 1, 2 and 4 bytes, in one row or in rows of a pitch. Part of libgpumem_vgpu.so, preloaded into jobs.

#include "estimator/virtual_gpu/device/contents.h"
#include "estimator/virtual_gpu/driver/driver.h"

static int fill(uint64_t to, size_t pitch, uint32_t value, size_t element_bytes, size_t width, size_t height, Stream stream) {
  const Error error = check_stream(stream);
  if (error != cuda::kSuccess) return error;
  if (width == 0 || height == 0) return cuda::kSuccess;
  size_t row_bytes, span;
  if (__builtin_mul_overflow(width, element_bytes, &row_bytes) || to % element_bytes != 0) return cuda::kInvalidValue;
  if (height > 1 && (pitch < row_bytes || pitch % element_bytes != 0)) return cuda::kInvalidValue;
  if (__builtin_mul_overflow(height - 1, pitch, &span) || __builtin_add_overflow(span, row_bytes, &span)) return cuda::kInvalidValue;
  const Error access = check_access(reinterpret_cast<void *>(to), span, true);
  if (access != cuda::kSuccess) return access;
  queue_work(stream);
  if (is_capturing(stream)) return cuda::kSuccess;
  if (pitch == row_bytes) {
    width *= height;
    height = 1;
  }
  for (size_t row = 0; row < height; ++row)
    fill_pattern(reinterpret_cast<void *>(to + row * pitch), value, static_cast<int>(element_bytes), width);
  return cuda::kSuccess;
}

#define FILLS(bits, type)                                                                                                                  \
  GPUMEM_EXPORT int cuMemsetD##bits##_v2(uint64_t to, type value, size_t n) { return fill(to, 0, value, bits / 8, n, 1, nullptr); }        \
  DRIVER_ALIAS(cuMemsetD##bits##_v2_ptds, cuMemsetD##bits##_v2);                                                                           \
  GPUMEM_EXPORT int cuMemsetD##bits##Async(uint64_t to, type value, size_t n, Stream s) { return fill(to, 0, value, bits / 8, n, 1, s); }  \
  DRIVER_ALIAS(cuMemsetD##bits##Async_ptsz, cuMemsetD##bits##Async);                                                                       \
  GPUMEM_EXPORT int cuMemsetD2D##bits##_v2(uint64_t to, size_t pitch, type value, size_t width, size_t height) {                           \
    return fill(to, pitch, value, bits / 8, width, height, nullptr);                                                                       \
  }                                                                                                                                        \
  GPUMEM_EXPORT int cuMemsetD2D##bits##Async(uint64_t to, size_t pitch, type value, size_t width, size_t height, Stream stream) {          \
    return fill(to, pitch, value, bits / 8, width, height, stream);                                                                        \
  }
FILLS(8, unsigned char)
FILLS(16, unsigned short)
FILLS(32, unsigned)
