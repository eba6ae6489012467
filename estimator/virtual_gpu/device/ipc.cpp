// SPDX-License-Identifier: Apache-2.0
// CUDA IPC. Part of libgpumem_vgpu.so, preloaded into jobs.

#include "estimator/virtual_gpu/device/ipc.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "estimator/virtual_gpu/device/objects.h"
#include "estimator/virtual_gpu/device/shared.h"
#include "estimator/virtual_gpu/device/streams.h"

namespace gpumem::virtual_gpu {
namespace {

constexpr uint64_t kEventPlace = 0x3156454543504947;  // "GIPCEEV1"

SharedPlace begin(uint64_t magic) {
  SharedPlace place = {};
  place.magic = magic;
  place.file_device = state.book.file_device;
  place.file_inode = state.book.file_inode;
  place.pid = getpid();
  return place;
}

bool is_ours(const SharedPlace &place, uint64_t magic) {
  return place.magic == magic && place.file_device == state.book.file_device && place.file_inode == state.book.file_inode;
}

// In the process that made a handle it is none.
bool read(const cuda::IpcHandle &handle, uint64_t magic, SharedPlace *place) {
  memcpy(place, handle.reserved, sizeof(*place));
  return is_ours(*place, magic) && place->pid != getpid();
}

}  // namespace

Error describe_shared(uint64_t magic, const Range &range, const void *pointer, size_t size, SharedPlace *place) {
  *place = begin(magic);
  place->descriptor = share_memory(range.start, range.map_size, range.device);
  if (place->descriptor < 0) return cuda::kOperatingSystem;
  place->offset = reinterpret_cast<uintptr_t>(pointer) - range.start;
  place->size = size;
  SharedLabel label;
  if (!read_label(place->descriptor, &label)) return cuda::kOperatingSystem;  // the program has closed it
  place->serial = label.serial;
  return cuda::kSuccess;
}

int open_shared(uint64_t magic, const SharedPlace &place, SharedLabel *label) {
  if (!is_ours(place, magic)) return -1;
  char path[64];
  snprintf(path, sizeof(path), "/proc/%d/fd/%d", place.pid, place.descriptor);
  const int descriptor = open(path, O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return -1;
  if (read_label(descriptor, label) && label->serial == place.serial && place.size <= label->size && place.offset <= label->size - place.size)
    return descriptor;
  close(descriptor);
  return -1;
}

Error export_memory(cuda::IpcHandle *handle, void *pointer) {
  const Range range = find_range(pointer);
  if (handle == nullptr || (range.kind != RangeKind::device && range.kind != RangeKind::slab)) return cuda::kInvalidValue;
  SharedPlace place;
  const Error error = describe_shared(kMemoryPlace, range, pointer, range.end() - reinterpret_cast<uintptr_t>(pointer), &place);
  if (error != cuda::kSuccess) return error;
  memset(handle, 0, sizeof(*handle));
  memcpy(handle->reserved, &place, sizeof(place));
  return cuda::kSuccess;
}

// The whole file is mapped: several pointers into one slab have one base.
Error import_memory(const cuda::IpcHandle &handle, void **pointer) {
  SharedPlace place;
  SharedLabel label;
  if (pointer == nullptr || !read(handle, kMemoryPlace, &place)) return cuda::kInvalidValue;
  const int descriptor = open_shared(kMemoryPlace, place, &label);
  if (descriptor < 0) return cuda::kInvalidValue;
  const int device = visible_device(label.device);
  if (device < 0) {
    close(descriptor);
    return cuda::kInvalidDevice;
  }
  const size_t size = label.size;
  void *address = map_address_space(size);
  const uintptr_t start = reinterpret_cast<uintptr_t>(address);
  const Range range{start, size, size, 0, nullptr, 0, static_cast<int16_t>(device), RangeKind::imported, 0};
  const bool mapped = address != nullptr && map_shared(descriptor, 0, start, size) && insert_range(range);
  close(descriptor);
  if (!mapped) {
    if (address != nullptr) unmap_address_space(address, size);
    return cuda::kOperatingSystem;
  }
  *pointer = static_cast<char *>(address) + place.offset;
  return cuda::kSuccess;
}

Error close_imported(void *pointer) {
  const Range range = find_range(pointer);
  if (range.kind != RangeKind::imported || remove_range(range.start, RangeKind::imported).kind == RangeKind::none)
    return cuda::kInvalidValue;
  unmap_address_space(reinterpret_cast<void *>(range.start), range.map_size);
  return cuda::kSuccess;
}

Error export_event(cuda::IpcHandle *handle, void *event) {
  if (handle == nullptr || find<Event>(event, kEventObject) == nullptr) return cuda::kInvalidHandle;
  const SharedPlace place = begin(kEventPlace);
  memset(handle, 0, sizeof(*handle));
  memcpy(handle->reserved, &place, sizeof(place));
  return cuda::kSuccess;
}

// Work completes at once, so another process's event is always a completed one.
Error import_event(const cuda::IpcHandle &handle, void **event) {
  SharedPlace place;
  if (!read(handle, kEventPlace, &place)) return cuda::kInvalidValue;
  const Error error = create_event(2, event);  // cudaEventDisableTiming, which IPC events must have
  if (error == cuda::kSuccess) record_event(*event, nullptr);
  return error;
}

}  // namespace gpumem::virtual_gpu
