// SPDX-License-Identifier: Apache-2.0
// CUDA arrays, and copies of boxes between them and linear memory. Part of libgpumem_vgpu.so.
// An array is linear device memory in rows of 512-byte multiples (the real layout is opaque; its size is of this order) and is
// charged as such; a mipmapped array is one array a level.
#pragma once

#include "estimator/virtual_gpu/device/memory.h"

namespace gpumem::virtual_gpu {

struct Channels {        // cudaChannelFormatDesc: bits of each channel and the kind of number
  int x, y, z, w, kind;
};

// CUarray_format → bits and the runtime's kind of number (0 signed, 1 unsigned, 2 float); false where there is no such array.
bool channels_of(unsigned format, unsigned count, Channels *channels);

struct Array {
  uint32_t kind;
  int device;
  char *memory;
  size_t pitch, width, height, depth;  // width in elements; height and depth as given, 0 allowed
  Channels channels;
  uint32_t element_bytes, flags;
};

// Not `charged`: its memory is somebody else's.
Error make_array(int device, const Channels &channels, size_t width, size_t height, size_t depth, unsigned flags, Array **array, bool charged = true);
Array *find_array(const void *handle);
Error free_array(void *handle);

// Halved from level to level, down to 1; `levels` 0 and what is too many become as many as there are.
Error make_mipmapped(int device, const Channels &channels, size_t width, size_t height, size_t depth, unsigned levels, unsigned flags,
                     void **mipmapped, bool charged = true);
Error mipmapped_level(const void *mipmapped, unsigned level, void **array);
Error free_mipmapped(void *mipmapped);
// cudaArrayMemoryRequirements: what an array or all levels of a mipmapped one take.
struct ArrayRequirements {
  size_t bytes, alignment;
  unsigned reserved[4];
};
Error array_requirements(const void *array_or_mipmapped, ArrayRequirements *requirements);

// A place in linear memory or in an array, from which a box of bytes is copied. Offsets: x in bytes, y in rows, z in slices.
struct Box {
  char *base;
  size_t pitch, rows;
  size_t x, y, z;
  size_t element;      // bytes of an array's element; 0: linear memory
  size_t row_bytes;    // of an array: what x may not exceed; 0: linear memory
  size_t slices;
};
// The place in an array; `elements`: x counts elements. False when the array is none.
bool array_box(const Array *array, const cuda::Position &at, bool elements, Box *box);
// Queues the copy on the stream. kInvalidValue when a side does not hold the box.
Error copy_box(const Box &to, const Box &from, size_t width_bytes, size_t height, size_t depth, Stream stream);

}  // namespace gpumem::virtual_gpu
