// SPDX-License-Identifier: Apache-2.0
// CUDA driver: arrays, textures, surfaces, copies in three dimensions. Part of libgpumem_vgpu.so, preloaded into jobs.

#include <string.h>

#include "estimator/virtual_gpu/device/arrays.h"
#include "estimator/virtual_gpu/device/textures.h"
#include "estimator/virtual_gpu/driver/driver.h"

namespace {

struct Descriptor {   // CUDA_ARRAY_DESCRIPTOR
  size_t width, height;
  unsigned format, channels;
};
struct Descriptor3D {  // CUDA_ARRAY3D_DESCRIPTOR
  size_t width, height, depth;
  unsigned format, channels, flags;
};
struct Side {  // of CUDA_MEMCPY3D
  size_t x, y, z, level;
  int type;
  void *host;
  uint64_t device;
  void *array;
  void *reserved;
  size_t pitch, height;
};
struct Copy {
  Side from, to;
  size_t width, height, depth;
};

unsigned format_of(const Channels &channels) {
  const unsigned size = channels.x == 8 ? 1u : channels.x == 16 ? 2u : 3u;
  return channels.kind == 2 ? (channels.x == 16 ? 0x10u : 0x20u) : channels.kind == 1 ? size : size + 7;
}

int create(void **array, const Descriptor3D &wanted) {
  const Error error = check_current();
  if (error != cuda::kSuccess) return error;
  Channels channels;
  if (array == nullptr || !channels_of(wanted.format, wanted.channels, &channels)) return cuda::kInvalidValue;
  Array *made = nullptr;
  const Error result = make_array(thread_state.device, channels, wanted.width, wanted.height, wanted.depth, wanted.flags, &made);
  *array = made;
  return result;
}

bool box_of(const Side &side, Box *box) {
  constexpr int kOnHost = 1, kInArray = 3;  // CUmemorytype
  if (side.type == kInArray) return array_box(find_array(side.array), {side.x, side.y, side.z}, false, box);
  char *base = side.type == kOnHost ? static_cast<char *>(side.host) : reinterpret_cast<char *>(side.device);
  const size_t whole = ~size_t{0} >> 1;  // a pitch of 0 in a copy of one row
  *box = {base, side.pitch != 0 ? side.pitch : whole, side.height, side.x, side.y, side.z, 0, 0, 0};
  return base != nullptr;
}

int copy(const Copy *p, Stream stream) {
  const Error error = check_stream(stream);
  if (error != cuda::kSuccess) return error;
  Box to, from;
  if (p == nullptr || !box_of(p->to, &to) || !box_of(p->from, &from)) return cuda::kInvalidValue;
  if ((to.pitch > p->width && p->to.pitch == 0 && p->height * p->depth > 1) || (p->from.type != 3 && p->from.pitch == 0 && p->height * p->depth > 1))
    return cuda::kInvalidValue;
  return copy_box(to, from, p->width, p->height, p->depth, stream);
}

// One row between an array at a byte offset and linear memory.
int copy_row(void *array, size_t offset, const void *pointer, size_t bytes, bool to_array, Stream stream) {
  Box side, linear{static_cast<char *>(const_cast<void *>(pointer)), bytes, 1, 0, 0, 0, 0, 0, 0};
  if (pointer == nullptr || !array_box(find_array(array), {offset, 0, 0}, false, &side)) return cuda::kInvalidValue;
  return to_array ? copy_box(side, linear, bytes, 1, 1, stream) : copy_box(linear, side, bytes, 1, 1, stream);
}
const void *pointer_of(uint64_t address) { return reinterpret_cast<const void *>(address); }

}  // namespace

GPUMEM_EXPORT int cuArrayCreate_v2(void **array, const Descriptor *wanted) {
  return wanted == nullptr ? static_cast<int>(cuda::kInvalidValue) : create(array, {wanted->width, wanted->height, 0, wanted->format, wanted->channels, 0});
}
GPUMEM_EXPORT int cuArray3DCreate_v2(void **array, const Descriptor3D *wanted) {
  return wanted == nullptr ? static_cast<int>(cuda::kInvalidValue) : create(array, *wanted);
}
GPUMEM_EXPORT int cuArray3DGetDescriptor_v2(Descriptor3D *wanted, void *handle) {
  const Array *array = find_array(handle);
  if (array == nullptr) return cuda::kInvalidHandle;
  if (wanted == nullptr) return cuda::kInvalidValue;
  const Channels &c = array->channels;
  *wanted = {array->width, array->height, array->depth, format_of(c), c.y == 0 ? 1u : c.z == 0 ? 2u : 4u, array->flags};
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cuArrayGetDescriptor_v2(Descriptor *wanted, void *handle) {
  Descriptor3D all;
  if (wanted == nullptr) return cuda::kInvalidValue;
  const int error = cuArray3DGetDescriptor_v2(&all, handle);
  if (error == cuda::kSuccess) *wanted = {all.width, all.height, all.format, all.channels};
  return error;
}
GPUMEM_EXPORT int cuArrayDestroy(void *array) { return free_array(array); }

GPUMEM_EXPORT int cuMipmappedArrayCreate(void **mipmapped, const Descriptor3D *wanted, unsigned levels) {
  const Error error = check_current();
  if (error != cuda::kSuccess) return error;
  Channels channels;
  if (mipmapped == nullptr || wanted == nullptr || !channels_of(wanted->format, wanted->channels, &channels)) return cuda::kInvalidValue;
  return make_mipmapped(thread_state.device, channels, wanted->width, wanted->height, wanted->depth, levels, wanted->flags, mipmapped);
}
GPUMEM_EXPORT int cuMipmappedArrayGetLevel(void **array, const void *mipmapped, unsigned level) { return mipmapped_level(mipmapped, level, array); }
GPUMEM_EXPORT int cuMipmappedArrayDestroy(void *mipmapped) { return free_mipmapped(mipmapped); }
GPUMEM_EXPORT int cuArrayGetMemoryRequirements(ArrayRequirements *out, const void *array, int) { return array_requirements(array, out); }
GPUMEM_EXPORT int cuMipmappedArrayGetMemoryRequirements(ArrayRequirements *out, const void *array, int) { return array_requirements(array, out); }

GPUMEM_EXPORT int cuMemcpy3D_v2(const Copy *parameters) { return copy(parameters, nullptr); }
DRIVER_ALIAS(cuMemcpy3D_v2_ptds, cuMemcpy3D_v2);
GPUMEM_EXPORT int cuMemcpy3DAsync_v2(const Copy *parameters, Stream stream) { return copy(parameters, stream); }
DRIVER_ALIAS(cuMemcpy3DAsync_v2_ptsz, cuMemcpy3DAsync_v2);
GPUMEM_EXPORT int cuMemcpyHtoA_v2(void *array, size_t offset, const void *from, size_t bytes) { return copy_row(array, offset, from, bytes, true, nullptr); }
GPUMEM_EXPORT int cuMemcpyHtoAAsync_v2(void *array, size_t offset, const void *from, size_t bytes, Stream s) { return copy_row(array, offset, from, bytes, true, s); }
GPUMEM_EXPORT int cuMemcpyAtoH_v2(void *to, void *array, size_t offset, size_t bytes) { return copy_row(array, offset, to, bytes, false, nullptr); }
GPUMEM_EXPORT int cuMemcpyAtoHAsync_v2(void *to, void *array, size_t offset, size_t bytes, Stream s) { return copy_row(array, offset, to, bytes, false, s); }
GPUMEM_EXPORT int cuMemcpyDtoA_v2(void *array, size_t offset, uint64_t from, size_t bytes) { return copy_row(array, offset, pointer_of(from), bytes, true, nullptr); }
GPUMEM_EXPORT int cuMemcpyAtoD_v2(uint64_t to, void *array, size_t offset, size_t bytes) { return copy_row(array, offset, pointer_of(to), bytes, false, nullptr); }

GPUMEM_EXPORT int cuMemcpyAtoA_v2(void *to, size_t to_offset, void *from, size_t offset, size_t bytes) {
  Box target, source;
  if (!array_box(find_array(to), {to_offset, 0, 0}, false, &target) || !array_box(find_array(from), {offset, 0, 0}, false, &source)) return cuda::kInvalidValue;
  return copy_box(target, source, bytes, 1, 1, nullptr);
}

// --- Textures and surfaces (device/textures.h) ---

GPUMEM_EXPORT int cuTexObjectCreate(unsigned long long *texture, const void *resource, const void *how, const void *view) {
  return make_texture(texture, resource, how, kDriverTextureBytes, view);
}
GPUMEM_EXPORT int cuTexObjectDestroy(unsigned long long texture) { return delete_texture(texture); }
GPUMEM_EXPORT int cuSurfObjectCreate(unsigned long long *surface, const void *resource) { return make_surface(surface, resource); }
GPUMEM_EXPORT int cuSurfObjectDestroy(unsigned long long surface) { return delete_surface(surface); }
GPUMEM_EXPORT int cuTexObjectGetResourceDesc(void *resource, unsigned long long texture) { return texture_resource(resource, kLongResourceBytes, texture); }
GPUMEM_EXPORT int cuTexObjectGetTextureDesc(void *how, unsigned long long texture) { return texture_how(how, kDriverTextureBytes, texture); }
GPUMEM_EXPORT int cuTexObjectGetResourceViewDesc(void *view, unsigned long long texture) { return texture_view(view, kLongViewBytes, texture); }
GPUMEM_EXPORT int cuSurfObjectGetResourceDesc(void *resource, unsigned long long surface) { return surface_resource(resource, kLongResourceBytes, surface); }
