// SPDX-License-Identifier: Apache-2.0
// External memory and semaphores. Part of libgpumem_vgpu.so, preloaded into jobs. See external.h.

#include "estimator/virtual_gpu/device/external.h"

#include <fcntl.h>
#include <unistd.h>

#include "estimator/virtual_gpu/device/objects.h"
#include "estimator/virtual_gpu/device/shared.h"
#include "estimator/virtual_gpu/device/streams.h"

namespace gpumem::virtual_gpu {
namespace {

constexpr size_t kPage = 4096;

struct Memory {
  uint32_t kind;
  int device, descriptor;
  uint64_t size;
  uint64_t serial;  // of its file: the program may have closed the descriptor
};
struct Semaphore {
  uint32_t kind;
  int type;
};

// Out of the way of programs that count on low numbers; the program's own is closed, as it belongs to CUDA now.
int take_descriptor(int descriptor) {
  const int own = fcntl(descriptor, F_DUPFD_CLOEXEC, 800);
  if (own >= 0) close(descriptor);
  return own;
}

}  // namespace

Error import_external_memory(int type, int descriptor, uint64_t size, void **memory) {
  Error error = check_current();
  if (error != cuda::kSuccess) return error;
  if (memory == nullptr || size == 0 || type < 1 || type > kLastMemoryType) return cuda::kInvalidValue;
  if (type != kOpaqueDescriptor) return cuda::kNotSupported;  // Windows, NvSci
  SharedLabel label;
  if (!read_label(descriptor, &label)) return cuda::kInvalidHandle;
  if (size > label.size) return cuda::kInvalidValue;
  const int device = visible_device(label.device);
  if (device < 0) return cuda::kInvalidDevice;
  Memory *made = make<Memory>(kExternalMemoryObject);
  const int own = made == nullptr ? -1 : take_descriptor(descriptor);
  if (own < 0) {
    delete_object(made);
    return host_failure("external memory (fcntl)", size);
  }
  made->device = device;
  made->descriptor = own;
  made->size = size;
  made->serial = label.serial;
  *memory = made;
  return cuda::kSuccess;
}

Error map_external(int descriptor, uint64_t offset, uint64_t size, int device, void **pointer) {
  const uint64_t before = offset % kPage, bytes = round_up(before + size, kPage);
  void *address = map_address_space(bytes);
  if (address == nullptr) return cuda::kOperatingSystem;
  const uintptr_t start = reinterpret_cast<uintptr_t>(address);
  void *made = static_cast<char *>(address) + before;
  if (!map_shared(descriptor, offset - before, start, bytes) ||
      !insert_range(Range{start, before + size, bytes, 0, made, 0, static_cast<int16_t>(device), RangeKind::external, 0})) {
    unmap_address_space(address, bytes);
    return cuda::kOperatingSystem;
  }
  *pointer = made;
  return cuda::kSuccess;
}

Error map_uncharged(int device, uint64_t size, void **pointer) {
  const uint64_t bytes = round_up(size, kPage);
  void *address = map_address_space(bytes);
  const uintptr_t start = reinterpret_cast<uintptr_t>(address);
  if (address == nullptr) return cuda::kOperatingSystem;
  if (!insert_range(Range{start, size, bytes, 0, address, 0, static_cast<int16_t>(device), RangeKind::external, 0})) {
    unmap_address_space(address, bytes);
    return cuda::kOperatingSystem;
  }
  *pointer = address;
  return cuda::kSuccess;
}

Error unmap_external(void *pointer) {
  const Range range = find_range(pointer);
  if (range.kind != RangeKind::external || range.owner != pointer || remove_range(range.start, RangeKind::external).kind == RangeKind::none)
    return cuda::kInvalidValue;
  unmap_address_space(reinterpret_cast<void *>(range.start), range.map_size);
  return cuda::kSuccess;
}

Error map_external_buffer(const void *handle, uint64_t offset, uint64_t size, void **pointer) {
  const Memory *memory = find<Memory>(handle, kExternalMemoryObject);
  if (memory == nullptr) return cuda::kInvalidHandle;
  if (pointer == nullptr || size == 0 || size > memory->size || offset > memory->size - size) return cuda::kInvalidValue;
  SharedLabel label;
  if (!read_label(memory->descriptor, &label) || label.serial != memory->serial) return host_failure("external memory (closed by the program)", size);
  return map_external(memory->descriptor, offset, size, memory->device, pointer);
}

Error map_external_mipmaps(const void *handle, uint64_t offset, const Channels &channels, const cuda::Extent &extent, unsigned levels,
                           unsigned flags, void **mipmapped) {
  const Memory *memory = find<Memory>(handle, kExternalMemoryObject);
  if (memory == nullptr) return cuda::kInvalidHandle;
  if (mipmapped == nullptr || offset >= memory->size) return cuda::kInvalidValue;
  return make_mipmapped(memory->device, channels, extent.width, extent.height, extent.depth, levels, flags, mipmapped, false);
}

// What was mapped stays until it is freed.
Error destroy_external_memory(void *handle) {
  Memory *memory = find<Memory>(handle, kExternalMemoryObject);
  if (memory == nullptr) return cuda::kInvalidHandle;
  SharedLabel label;
  if (read_label(memory->descriptor, &label) && label.serial == memory->serial) close(memory->descriptor);
  delete_object(memory);
  return cuda::kSuccess;
}

Error import_external_semaphore(int type, int descriptor, void **semaphore) {
  const Error error = check_current();
  if (error != cuda::kSuccess) return error;
  if (semaphore == nullptr || type < 1 || type > kLastSemaphoreType) return cuda::kInvalidValue;
  if (type != kOpaqueDescriptor && type != kTimelineDescriptor) return cuda::kNotSupported;
  if (fcntl(descriptor, F_GETFD) < 0) return cuda::kInvalidHandle;
  Semaphore *made = make<Semaphore>(kExternalSemaphoreObject);
  if (made == nullptr) return cuda::kOperatingSystem;
  made->type = type;
  close(descriptor);  // it belongs to CUDA now
  *semaphore = made;
  return cuda::kSuccess;
}

bool is_external_semaphore(const void *handle) { return find<Semaphore>(handle, kExternalSemaphoreObject) != nullptr; }

Error queue_external_semaphores(void *const *semaphores, const void *parameters, unsigned count, Stream stream) {
  const Error error = check_stream(stream);
  if (error != cuda::kSuccess) return error;
  if (count == 0 || semaphores == nullptr || parameters == nullptr) return cuda::kInvalidValue;
  for (unsigned s = 0; s < count; ++s)
    if (!is_external_semaphore(semaphores[s])) return cuda::kInvalidHandle;
  queue_work(stream);
  return cuda::kSuccess;
}

Error destroy_external_semaphore(void *handle) {
  Semaphore *semaphore = find<Semaphore>(handle, kExternalSemaphoreObject);
  if (semaphore == nullptr) return cuda::kInvalidHandle;
  delete_object(semaphore);
  return cuda::kSuccess;
}

}  // namespace gpumem::virtual_gpu
