// SPDX-License-Identifier: Apache-2.0
// Arrays. Part of libgpumem_vgpu.so, preloaded into jobs.

#include "estimator/virtual_gpu/device/arrays.h"

#include <string.h>

#include "estimator/virtual_gpu/device/contents.h"
#include "estimator/virtual_gpu/device/external.h"
#include "estimator/virtual_gpu/device/objects.h"
#include "estimator/virtual_gpu/device/streams.h"

namespace gpumem::virtual_gpu {
namespace {

constexpr size_t kRowUnit = 512;
constexpr size_t kLargestSide = size_t{1} << 20;  // no device has sides beyond 131072; keeps products from overflowing

constexpr unsigned kMostLevels = 21;  // of kLargestSide

struct Mipmapped {
  uint32_t kind, levels;
  Array **level;
};

size_t at_least_one(size_t n) { return n > 0 ? n : 1; }

bool holds(const Box &box, size_t width, size_t height, size_t depth) {
  if (box.base == nullptr || width > box.pitch || box.x > box.pitch - width) return false;
  if (box.element == 0) return true;
  return box.x + width <= box.row_bytes && box.y + height <= box.rows && box.z + depth <= box.slices;
}

char *first_byte(const Box &box) { return box.base + (box.z * box.rows + box.y) * box.pitch + box.x; }

}  // namespace

bool channels_of(unsigned format, unsigned count, Channels *channels) {
  int bits, kind;
  switch (format) {
    case 0x01: bits = 8, kind = 1; break;
    case 0x02: bits = 16, kind = 1; break;
    case 0x03: bits = 32, kind = 1; break;
    case 0x08: bits = 8, kind = 0; break;
    case 0x09: bits = 16, kind = 0; break;
    case 0x0a: bits = 32, kind = 0; break;
    case 0x10: bits = 16, kind = 2; break;
    case 0x20: bits = 32, kind = 2; break;
    default: return false;
  }
  if (count != 1 && count != 2 && count != 4) return false;
  *channels = {bits, count > 1 ? bits : 0, count > 2 ? bits : 0, count > 2 ? bits : 0, kind};
  return true;
}

Error make_array(int device, const Channels &channels, size_t width, size_t height, size_t depth, unsigned flags, Array **array, bool charged) {
  const int bits = channels.x + channels.y + channels.z + channels.w;
  if (bits < 8 || bits > 128 || bits % 8 != 0) return static_cast<Error>(20);  // cudaErrorInvalidChannelDescriptor
  if (width == 0 || width > kLargestSide || height > kLargestSide || depth > kLargestSide) return cuda::kInvalidValue;
  const size_t element = static_cast<size_t>(bits) / 8;
  const size_t pitch = (width * element + kRowUnit - 1) / kRowUnit * kRowUnit;
  void *memory = nullptr;
  const size_t bytes = pitch * at_least_one(height) * at_least_one(depth);
  const Error error = charged ? allocate_device(device, bytes, &memory) : map_uncharged(device, bytes, &memory);
  if (error != cuda::kSuccess) return error;
  Array *made = make<Array>(kArrayObject);
  if (made == nullptr) {
    free_device(memory);
    return cuda::kOperatingSystem;
  }
  made->device = device;
  made->memory = static_cast<char *>(memory);
  made->pitch = pitch;
  made->width = width;
  made->height = height;
  made->depth = depth;
  made->channels = channels;
  made->element_bytes = static_cast<uint32_t>(element);
  made->flags = flags;
  *array = made;
  return cuda::kSuccess;
}

Array *find_array(const void *handle) { return find<Array>(handle, kArrayObject); }

Error free_array(void *handle) {
  Array *array = find_array(handle);
  if (array == nullptr) return cuda::kInvalidHandle;
  free_device(array->memory);
  delete_object(array);
  return cuda::kSuccess;
}

Error make_mipmapped(int device, const Channels &channels, size_t width, size_t height, size_t depth, unsigned levels, unsigned flags,
                     void **mipmapped, bool charged) {
  size_t longest = width > height ? width : height;
  if (depth > longest) longest = depth;
  unsigned most = 1;
  for (; longest > 1 && most < kMostLevels; longest /= 2) ++most;
  const unsigned count = levels == 0 || levels > most ? most : levels;
  Mipmapped *made = make<Mipmapped>(kMipmappedObject);
  if (made == nullptr) return cuda::kOperatingSystem;
  made->level = static_cast<Array **>(allocate_zeroed(count * sizeof(Array *)));
  Error error = made->level != nullptr ? cuda::kSuccess : cuda::kOperatingSystem;
  const auto half = [](size_t side) { return side > 1 ? side / 2 : side; };
  for (; error == cuda::kSuccess && made->levels < count; width = half(width), height = half(height), depth = half(depth)) {
    error = make_array(device, channels, width, height, depth, flags, &made->level[made->levels], charged);
    if (error == cuda::kSuccess) ++made->levels;
  }
  if (error != cuda::kSuccess) {
    free_mipmapped(made);
    return error;
  }
  *mipmapped = made;
  return cuda::kSuccess;
}

Error mipmapped_level(const void *handle, unsigned level, void **array) {
  const Mipmapped *mipmapped = find<Mipmapped>(handle, kMipmappedObject);
  if (mipmapped == nullptr) return cuda::kInvalidHandle;
  if (array == nullptr || level >= mipmapped->levels) return cuda::kInvalidValue;
  *array = mipmapped->level[level];
  return cuda::kSuccess;
}

Error free_mipmapped(void *handle) {
  Mipmapped *mipmapped = find<Mipmapped>(handle, kMipmappedObject);
  if (mipmapped == nullptr) return cuda::kInvalidHandle;
  for (uint32_t level = 0; level < mipmapped->levels; ++level) free_array(mipmapped->level[level]);
  release_zeroed(mipmapped->level);
  delete_object(mipmapped);
  return cuda::kSuccess;
}

Error array_requirements(const void *handle, ArrayRequirements *requirements) {
  const Array *array = find_array(handle);
  const Mipmapped *mipmapped = find<Mipmapped>(handle, kMipmappedObject);
  if (array == nullptr && mipmapped == nullptr) return cuda::kInvalidHandle;
  if (requirements == nullptr) return cuda::kInvalidValue;
  const auto bytes = [](const Array &of) { return of.pitch * at_least_one(of.height) * at_least_one(of.depth); };
  *requirements = {};
  requirements->alignment = kRowUnit;
  if (array != nullptr) requirements->bytes = bytes(*array);
  for (uint32_t level = 0; mipmapped != nullptr && level < mipmapped->levels; ++level) requirements->bytes += bytes(*mipmapped->level[level]);
  return cuda::kSuccess;
}

bool array_box(const Array *array, const cuda::Position &at, bool elements, Box *box) {
  if (array == nullptr) return false;
  const size_t element = array->element_bytes;
  *box = {array->memory, array->pitch, at_least_one(array->height), elements ? at.x * element : at.x, at.y, at.z, element,
          array->width * element, at_least_one(array->depth)};
  return true;
}

Error copy_box(const Box &to, const Box &from, size_t width_bytes, size_t height, size_t depth, Stream stream) {
  Error error = check_stream(stream);
  if (error != cuda::kSuccess) return error;
  if (width_bytes == 0 || height == 0 || depth == 0) return cuda::kSuccess;
  if (!holds(to, width_bytes, height, depth) || !holds(from, width_bytes, height, depth)) return cuda::kInvalidValue;
  const auto span = [=](const Box &box) {
    const size_t rows = (depth - 1) * box.rows + height - 1;
    return rows == 0 ? width_bytes : rows > SIZE_MAX / 4 / box.pitch ? SIZE_MAX : rows * box.pitch + width_bytes;
  };
  error = check_access(first_byte(to), span(to), false);
  if (error == cuda::kSuccess) error = check_access(first_byte(from), span(from), false);
  if (error != cuda::kSuccess) return error;
  queue_work(stream);
  if (is_capturing(stream)) return cuda::kSuccess;
  for (size_t z = 0; z < depth; ++z)
    copy_rows(first_byte(to) + z * to.rows * to.pitch, to.pitch, first_byte(from) + z * from.rows * from.pitch, from.pitch, width_bytes, height);
  return cuda::kSuccess;
}

}  // namespace gpumem::virtual_gpu
