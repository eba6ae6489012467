// SPDX-License-Identifier: Apache-2.0
// CUDA runtime: arrays. Part of libgpumem_vgpu.so, preloaded into jobs.

#include "estimator/virtual_gpu/device/arrays.h"
#include "estimator/virtual_gpu/runtime/runtime.h"

static int make(void **array, const Channels *channels, size_t width, size_t height, size_t depth, unsigned flags) {
  const Error error = check_current();
  if (error != cuda::kSuccess) return done(error);
  if (array == nullptr || channels == nullptr) return done(cuda::kInvalidValue);
  Array *made = nullptr;
  const Error result = make_array(thread_state.device, *channels, width, height, depth, flags, &made);
  *array = made;
  return done(result);
}
GPUMEM_EXPORT int cudaMallocArray(void **array, const Channels *channels, size_t width, size_t height, unsigned flags) {
  return make(array, channels, width, height, 0, flags);
}
GPUMEM_EXPORT int cudaMalloc3DArray(void **array, const Channels *channels, cuda::Extent extent, unsigned flags) {
  return make(array, channels, extent.width, extent.height, extent.depth, flags);
}
GPUMEM_EXPORT int cudaFreeArray(void *array) {
  const Error error = check_current();
  return done(error != cuda::kSuccess || array == nullptr ? error : free_array(array));
}
GPUMEM_EXPORT int cudaMallocMipmappedArray(void **mipmapped, const Channels *channels, cuda::Extent extent, unsigned levels, unsigned flags) {
  const Error error = check_current();
  if (error != cuda::kSuccess) return done(error);
  if (mipmapped == nullptr || channels == nullptr) return done(cuda::kInvalidValue);
  return done(make_mipmapped(thread_state.device, *channels, extent.width, extent.height, extent.depth, levels, flags, mipmapped));
}
GPUMEM_EXPORT int cudaGetMipmappedArrayLevel(void **array, const void *mipmapped, unsigned level) { return done(mipmapped_level(mipmapped, level, array)); }
GPUMEM_EXPORT int cudaFreeMipmappedArray(void *mipmapped) {
  const Error error = check_current();
  return done(error != cuda::kSuccess || mipmapped == nullptr ? error : free_mipmapped(mipmapped));
}
GPUMEM_EXPORT int cudaArrayGetMemoryRequirements(ArrayRequirements *out, const void *array, int) { return done(array_requirements(array, out)); }
GPUMEM_EXPORT int cudaMipmappedArrayGetMemoryRequirements(ArrayRequirements *out, const void *array, int) { return done(array_requirements(array, out)); }
GPUMEM_EXPORT Channels cudaCreateChannelDesc(int x, int y, int z, int w, int kind) { return {x, y, z, w, kind}; }
GPUMEM_EXPORT int cudaGetChannelDesc(Channels *channels, const void *handle) {
  const Array *array = find_array(handle);
  if (array == nullptr || channels == nullptr) return done(cuda::kInvalidValue);
  *channels = array->channels;
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cudaArrayGetInfo(Channels *channels, cuda::Extent *extent, unsigned *flags, void *handle) {
  const Array *array = find_array(handle);
  if (array == nullptr) return done(cuda::kInvalidHandle);
  if (channels != nullptr) *channels = array->channels;
  if (extent != nullptr) *extent = {array->width, array->height, array->depth};
  if (flags != nullptr) *flags = array->flags;
  return cuda::kSuccess;
}

// --- Copies: offsets into arrays are in bytes here, in elements in cudaMemcpy3D ---

static int copy(void *to_array, size_t to_x, size_t to_y, void *to, size_t to_pitch, const void *from_array, size_t from_x, size_t from_y,
                const void *from, size_t from_pitch, size_t width, size_t height, Stream stream) {
  Box target, source;
  const auto box = [](const void *array, size_t x, size_t y, const void *pointer, size_t pitch, Box *made) {
    if (pointer == nullptr) return array_box(find_array(array), {x, y, 0}, false, made);
    *made = {static_cast<char *>(const_cast<void *>(pointer)), pitch, 0, 0, 0, 0, 0, 0, 0};
    return true;
  };
  if (!box(to_array, to_x, to_y, to, to_pitch, &target) || !box(from_array, from_x, from_y, from, from_pitch, &source))
    return done(cuda::kInvalidValue);
  return done(copy_box(target, source, width, height, 1, stream));
}
GPUMEM_EXPORT int cudaMemcpy2DToArrayAsync(void *array, size_t x, size_t y, const void *from, size_t pitch, size_t width, size_t height, int, Stream stream) {
  return copy(array, x, y, nullptr, 0, nullptr, 0, 0, from, pitch, width, height, stream);
}
GPUMEM_EXPORT int cudaMemcpy2DToArray(void *array, size_t x, size_t y, const void *from, size_t pitch, size_t width, size_t height, int) {
  return copy(array, x, y, nullptr, 0, nullptr, 0, 0, from, pitch, width, height, nullptr);
}
GPUMEM_EXPORT int cudaMemcpy2DFromArrayAsync(void *to, size_t pitch, const void *array, size_t x, size_t y, size_t width, size_t height, int, Stream stream) {
  return copy(nullptr, 0, 0, to, pitch, array, x, y, nullptr, 0, width, height, stream);
}
GPUMEM_EXPORT int cudaMemcpy2DFromArray(void *to, size_t pitch, const void *array, size_t x, size_t y, size_t width, size_t height, int) {
  return copy(nullptr, 0, 0, to, pitch, array, x, y, nullptr, 0, width, height, nullptr);
}
GPUMEM_EXPORT int cudaMemcpy2DArrayToArray(void *to, size_t to_x, size_t to_y, const void *from, size_t x, size_t y, size_t width, size_t height, int) {
  return copy(to, to_x, to_y, nullptr, 0, from, x, y, nullptr, 0, width, height, nullptr);
}
GPUMEM_EXPORT int cudaMemcpyToArray(void *array, size_t x, size_t y, const void *from, size_t bytes, int) {
  return copy(array, x, y, nullptr, 0, nullptr, 0, 0, from, bytes, bytes, 1, nullptr);
}
GPUMEM_EXPORT int cudaMemcpyFromArray(void *to, const void *array, size_t x, size_t y, size_t bytes, int) {
  return copy(nullptr, 0, 0, to, bytes, array, x, y, nullptr, 0, bytes, 1, nullptr);
}
GPUMEM_EXPORT int cudaMemcpyToArrayAsync(void *array, size_t x, size_t y, const void *from, size_t bytes, int, Stream stream) {
  return copy(array, x, y, nullptr, 0, nullptr, 0, 0, from, bytes, bytes, 1, stream);
}
GPUMEM_EXPORT int cudaMemcpyFromArrayAsync(void *to, const void *array, size_t x, size_t y, size_t bytes, int, Stream stream) {
  return copy(nullptr, 0, 0, to, bytes, array, x, y, nullptr, 0, bytes, 1, stream);
}
GPUMEM_EXPORT int cudaMemcpyArrayToArray(void *to, size_t to_x, size_t to_y, const void *from, size_t x, size_t y, size_t bytes, int) {
  return copy(to, to_x, to_y, nullptr, 0, from, x, y, nullptr, 0, bytes, 1, nullptr);
}
