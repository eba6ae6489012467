// SPDX-License-Identifier: Apache-2.0
// Sizes of CUDA arrays, for the meter. Runs in a job's processes.
// The layout of an array is opaque, and its size can be asked for only when it is there: rows of elements, as the estimate counts
// them too (virtual_gpu/device/arrays.h). What a limit refuses is decided by that.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace gpumem::meter {

inline uint64_t at_least_one(uint64_t n) { return n > 0 ? n : 1; }

// Rows are padded to at most 512 bytes (cudaDeviceProp::texturePitchAlignment is 32, memory pitch 512 on all GPUs).
inline uint64_t pitched_bytes(uint64_t width, uint64_t rows) {
  uint64_t bytes = 0;
  const uint64_t pitch = width > ~511ull ? width : (width + 511) / 512 * 512;
  return __builtin_mul_overflow(pitch, rows, &bytes) ? ~0ull : bytes;
}

// `element` in bytes; height and depth 0 count as 1. `flags` are those of CUDA: sparse arrays and those whose memory is mapped later
// (cudaArraySparse, cudaArrayDeferredMapping; CUDA_ARRAY3D_… alike) take nothing when they are made.
inline uint64_t array_bytes(uint64_t element, uint64_t width, uint64_t height, uint64_t depth, unsigned flags) {
  constexpr unsigned kWithoutMemory = 0x40 | 0x80;
  uint64_t row = 0, rows = 0;
  if ((flags & kWithoutMemory) != 0) return 0;
  if (__builtin_mul_overflow(element, width, &row) || __builtin_mul_overflow(at_least_one(height), at_least_one(depth), &rows)) return ~0ull;
  return pitched_bytes(row, rows);
}

// All levels: each has half the side of the one before, down to 1.
inline uint64_t mipmapped_bytes(uint64_t element, uint64_t width, uint64_t height, uint64_t depth, unsigned levels, unsigned flags) {
  uint64_t sum = 0;
  for (unsigned level = 0; level < levels && level < 32; ++level) {
    if (__builtin_add_overflow(sum, array_bytes(element, width, height, depth, flags), &sum)) return ~0ull;
    if (width <= 1 && height <= 1 && depth <= 1) break;
    const auto half = [](uint64_t side) { return side > 1 ? side / 2 : side; };
    width = half(width), height = half(height), depth = half(depth);
  }
  return sum;
}

}  // namespace gpumem::meter
