// SPDX-License-Identifier: Apache-2.0
// CUDA driver: texture and surface references. Part of libgpumem_vgpu.so, preloaded into jobs.

#include <string.h>

#include "estimator/virtual_gpu/device/objects.h"
#include "estimator/virtual_gpu/device/references.h"
#include "estimator/virtual_gpu/driver/driver.h"

struct ArrayDescriptor {  // CUDA_ARRAY_DESCRIPTOR
  size_t width, height;
  unsigned format, channels;
};

// Any name is found in a module, as functions are: its image is not read.
static int get(void **made, void *module, const char *name, unsigned surface) {
  if (find_object(module, kModuleObject) == nullptr) return cuda::kInvalidHandle;
  if (made == nullptr || name == nullptr) return cuda::kInvalidValue;
  *made = module_reference(module, name, surface);
  return *made != nullptr ? cuda::kSuccess : cuda::kOperatingSystem;
}
GPUMEM_EXPORT int cuModuleGetTexRef(void **made, void *module, const char *name) { return get(made, module, name, 0); }
GPUMEM_EXPORT int cuModuleGetSurfRef(void **made, void *module, const char *name) { return get(made, module, name, 1); }
GPUMEM_EXPORT int cuTexRefCreate(void **made) {
  if (made == nullptr) return cuda::kInvalidValue;
  *made = new_reference();
  return *made != nullptr ? cuda::kSuccess : cuda::kOperatingSystem;
}
GPUMEM_EXPORT int cuTexRefDestroy(void *handle) { return delete_reference(handle); }

// --- What it is bound to ---

GPUMEM_EXPORT int cuTexRefSetAddress_v2(size_t *offset, void *handle, uint64_t pointer, size_t bytes) {
  Reference *reference = find_reference(handle, 0);
  return reference == nullptr ? cuda::kInvalidValue : bind_address(reference, pointer, bytes, offset);
}
GPUMEM_EXPORT int cuTexRefSetAddress2D_v3(void *handle, const ArrayDescriptor *wanted, uint64_t pointer, size_t pitch) {
  Reference *reference = find_reference(handle, 0);
  size_t bytes;
  if (reference == nullptr || wanted == nullptr || wanted->height == 0 || __builtin_mul_overflow(pitch, wanted->height - 1, &bytes))
    return cuda::kInvalidValue;
  const Error error = bind_address(reference, pointer, bytes + 1, nullptr);
  if (error != cuda::kSuccess) return error;
  reference->format = wanted->format;
  reference->channels = wanted->channels;
  return cuda::kSuccess;
}
DRIVER_ALIAS(cuTexRefSetAddress2D_v2, cuTexRefSetAddress2D_v3);
GPUMEM_EXPORT int cuTexRefSetArray(void *handle, void *array, unsigned) {
  Reference *reference = find_reference(handle, 0);
  return reference == nullptr ? cuda::kInvalidValue : bind_array(reference, array);
}
GPUMEM_EXPORT int cuTexRefSetMipmappedArray(void *handle, void *mipmapped, unsigned) {
  Reference *reference = find_reference(handle, 0);
  return reference == nullptr ? cuda::kInvalidValue : bind_mipmapped(reference, mipmapped);
}
GPUMEM_EXPORT int cuSurfRefSetArray(void *handle, void *array, unsigned flags) {
  Reference *reference = find_reference(handle, 1);
  return reference == nullptr || flags != 0 ? cuda::kInvalidValue : bind_array(reference, array);
}
static int get_bound(void **got, void *handle, unsigned surface, void *Reference::*which) {
  const Reference *reference = find_reference(handle, surface);
  if (reference == nullptr || got == nullptr || reference->*which == nullptr) return cuda::kInvalidValue;
  *got = reference->*which;
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cuTexRefGetArray(void **array, void *handle) { return get_bound(array, handle, 0, &Reference::array); }
GPUMEM_EXPORT int cuTexRefGetMipmappedArray(void **mipmapped, void *handle) { return get_bound(mipmapped, handle, 0, &Reference::mipmapped); }
GPUMEM_EXPORT int cuSurfRefGetArray(void **array, void *handle) { return get_bound(array, handle, 1, &Reference::array); }
GPUMEM_EXPORT int cuTexRefGetAddress_v2(uint64_t *pointer, void *handle) {
  const Reference *reference = find_reference(handle, 0);
  if (reference == nullptr || pointer == nullptr || reference->address == 0) return cuda::kInvalidValue;
  *pointer = reference->address;
  return cuda::kSuccess;
}

// --- How it is read ---

template <class T>
static int set(void *handle, T Reference::*field, T value) {
  Reference *reference = find_reference(handle, 0);
  if (reference == nullptr) return cuda::kInvalidValue;
  reference->*field = value;
  return cuda::kSuccess;
}
template <class T>
static int get(T *value, void *handle, T Reference::*field) {
  const Reference *reference = find_reference(handle, 0);
  if (reference == nullptr || value == nullptr) return cuda::kInvalidValue;
  *value = reference->*field;
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cuTexRefSetFormat(void *handle, unsigned format, int channels) {
  if (channels != 1 && channels != 2 && channels != 4) return cuda::kInvalidValue;
  const int error = set(handle, &Reference::format, format);
  return error != cuda::kSuccess ? error : set(handle, &Reference::channels, static_cast<unsigned>(channels));
}
GPUMEM_EXPORT int cuTexRefGetFormat(unsigned *format, int *channels, void *handle) {
  const Reference *reference = find_reference(handle, 0);
  if (reference == nullptr || format == nullptr || channels == nullptr) return cuda::kInvalidValue;
  *format = reference->format;
  *channels = static_cast<int>(reference->channels);
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cuTexRefSetAddressMode(void *handle, int dimension, int mode) {
  Reference *reference = find_reference(handle, 0);
  if (reference == nullptr || dimension < 0 || dimension > 2) return cuda::kInvalidValue;
  reference->address_modes[dimension] = mode;
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cuTexRefGetAddressMode(int *mode, void *handle, int dimension) {
  const Reference *reference = find_reference(handle, 0);
  if (reference == nullptr || mode == nullptr || dimension < 0 || dimension > 2) return cuda::kInvalidValue;
  *mode = reference->address_modes[dimension];
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cuTexRefSetFilterMode(void *handle, int mode) { return set(handle, &Reference::filter, mode); }
GPUMEM_EXPORT int cuTexRefGetFilterMode(int *mode, void *handle) { return get(mode, handle, &Reference::filter); }
GPUMEM_EXPORT int cuTexRefSetMipmapFilterMode(void *handle, int mode) { return set(handle, &Reference::mipmap_filter, mode); }
GPUMEM_EXPORT int cuTexRefGetMipmapFilterMode(int *mode, void *handle) { return get(mode, handle, &Reference::mipmap_filter); }
GPUMEM_EXPORT int cuTexRefSetMipmapLevelBias(void *handle, float bias) { return set(handle, &Reference::bias, bias); }
GPUMEM_EXPORT int cuTexRefGetMipmapLevelBias(float *bias, void *handle) { return get(bias, handle, &Reference::bias); }
GPUMEM_EXPORT int cuTexRefSetMipmapLevelClamp(void *handle, float least, float most) {
  const int error = set(handle, &Reference::least_level, least);
  return error != cuda::kSuccess ? error : set(handle, &Reference::most_level, most);
}
GPUMEM_EXPORT int cuTexRefGetMipmapLevelClamp(float *least, float *most, void *handle) {
  if (most == nullptr) return cuda::kInvalidValue;
  const int error = get(least, handle, &Reference::least_level);
  return error != cuda::kSuccess ? error : get(most, handle, &Reference::most_level);
}
GPUMEM_EXPORT int cuTexRefSetMaxAnisotropy(void *handle, unsigned most) { return set(handle, &Reference::anisotropy, most); }
GPUMEM_EXPORT int cuTexRefGetMaxAnisotropy(int *most, void *handle) {
  unsigned value = 0;
  if (most == nullptr) return cuda::kInvalidValue;
  const int error = get(&value, handle, &Reference::anisotropy);
  if (error == cuda::kSuccess) *most = static_cast<int>(value);
  return error;
}
GPUMEM_EXPORT int cuTexRefSetBorderColor(void *handle, const float *color) {
  Reference *reference = find_reference(handle, 0);
  if (reference == nullptr || color == nullptr) return cuda::kInvalidValue;
  memcpy(reference->border, color, sizeof(reference->border));
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cuTexRefGetBorderColor(float *color, void *handle) {
  const Reference *reference = find_reference(handle, 0);
  if (reference == nullptr || color == nullptr) return cuda::kInvalidValue;
  memcpy(color, reference->border, sizeof(reference->border));
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cuTexRefSetFlags(void *handle, unsigned flags) { return set(handle, &Reference::flags, flags); }
GPUMEM_EXPORT int cuTexRefGetFlags(unsigned *flags, void *handle) { return get(flags, handle, &Reference::flags); }
