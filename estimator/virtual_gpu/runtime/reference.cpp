// SPDX-License-Identifier: Apache-2.0
// CUDA runtime: texture and surface references, of programs compiled by CUDA 11. Part of libgpumem_vgpu.so, preloaded into jobs.

#include "estimator/virtual_gpu/device/references.h"
#include "estimator/virtual_gpu/runtime/runtime.h"

GPUMEM_EXPORT void __cudaRegisterTexture(void **, const void *variable, const void **, const char *, int, int, int) {
  register_reference(variable, 0);
}
GPUMEM_EXPORT void __cudaRegisterSurface(void **, const void *variable, const void **, const char *, int, int) {
  register_reference(variable, 1);
}

static int get(const void **reference, const void *symbol, unsigned surface, Error otherwise) {
  if (reference == nullptr) return done(cuda::kInvalidValue);
  *reference = registered_reference(symbol, surface) != nullptr ? symbol : nullptr;
  return done(*reference != nullptr ? cuda::kSuccess : otherwise);
}
GPUMEM_EXPORT int cudaGetTextureReference(const void **reference, const void *symbol) { return get(reference, symbol, 0, kInvalidTexture); }
GPUMEM_EXPORT int cudaGetSurfaceReference(const void **reference, const void *symbol) { return get(reference, symbol, 1, kInvalidSurface); }

GPUMEM_EXPORT int cudaBindTexture(size_t *offset, const void *variable, const void *pointer, const Channels *channels, size_t bytes) {
  Reference *reference = registered_reference(variable, 0);
  if (reference == nullptr) return done(kInvalidTexture);
  if (channels == nullptr) return done(cuda::kInvalidValue);
  return done(bind_address(reference, reinterpret_cast<uint64_t>(pointer), bytes, offset));
}
GPUMEM_EXPORT int cudaBindTexture2D(size_t *offset, const void *variable, const void *pointer, const Channels *channels, size_t width,
                                    size_t height, size_t pitch) {
  Reference *reference = registered_reference(variable, 0);
  if (reference == nullptr) return done(kInvalidTexture);
  size_t bytes;
  if (channels == nullptr || width == 0 || height == 0 || __builtin_mul_overflow(pitch, height - 1, &bytes)) return done(cuda::kInvalidValue);
  return done(bind_address(reference, reinterpret_cast<uint64_t>(pointer), bytes + 1, offset));
}
GPUMEM_EXPORT int cudaBindTextureToArray(const void *variable, const void *array, const Channels *channels) {
  Reference *reference = registered_reference(variable, 0);
  if (reference == nullptr) return done(kInvalidTexture);
  return done(channels == nullptr ? cuda::kInvalidValue : bind_array(reference, array));
}
GPUMEM_EXPORT int cudaBindTextureToMipmappedArray(const void *variable, const void *mipmapped, const Channels *channels) {
  Reference *reference = registered_reference(variable, 0);
  if (reference == nullptr) return done(kInvalidTexture);
  return done(channels == nullptr ? cuda::kInvalidValue : bind_mipmapped(reference, mipmapped));
}
GPUMEM_EXPORT int cudaUnbindTexture(const void *variable) {
  Reference *reference = registered_reference(variable, 0);
  if (reference == nullptr) return done(kInvalidTexture);
  bind_nothing(reference);
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cudaGetTextureAlignmentOffset(size_t *offset, const void *variable) {
  const Reference *reference = registered_reference(variable, 0);
  if (reference == nullptr) return done(kInvalidTexture);
  if (offset == nullptr) return done(cuda::kInvalidValue);
  if (reference->address == 0 && reference->array == nullptr && reference->mipmapped == nullptr) return done(kInvalidTextureBinding);
  *offset = reference->address % 512;
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cudaBindSurfaceToArray(const void *variable, const void *array, const Channels *channels) {
  Reference *reference = registered_reference(variable, 1);
  if (reference == nullptr) return done(kInvalidSurface);
  return done(channels == nullptr ? cuda::kInvalidValue : bind_array(reference, array));
}
