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

constexpr uint64_t kMemoryMagic = 0x314d454d43504947;  // "GIPCMEM1"
constexpr uint64_t kEventMagic = 0x3156454543504947;   // "GIPCEEV1"

struct Contents {
  uint64_t magic;
  uint64_t file_device, file_inode;  // the book
  int32_t pid;
  int32_t descriptor;                // of the memory's file in that process
  uint64_t offset, size;
  uint64_t serial;                   // of the file: the descriptor may be another one's by now
};
static_assert(sizeof(Contents) <= sizeof(cuda::IpcHandle));

Contents begin(uint64_t magic) {
  Contents contents = {};
  contents.magic = magic;
  contents.file_device = state.book.file_device;
  contents.file_inode = state.book.file_inode;
  contents.pid = getpid();
  return contents;
}

bool read(const cuda::IpcHandle &handle, uint64_t magic, Contents *contents) {
  memcpy(contents, handle.reserved, sizeof(*contents));
  return contents->magic == magic && contents->file_device == state.book.file_device &&
         contents->file_inode == state.book.file_inode && contents->pid != getpid();
}

}  // namespace

Error export_memory(cuda::IpcHandle *handle, void *pointer) {
  const Range range = find_range(pointer);
  if (handle == nullptr || (range.kind != RangeKind::device && range.kind != RangeKind::slab)) return cuda::kInvalidValue;
  Contents contents = begin(kMemoryMagic);
  contents.descriptor = share_memory(range.start, range.map_size, range.device);
  if (contents.descriptor < 0) return cuda::kOperatingSystem;
  contents.offset = reinterpret_cast<uintptr_t>(pointer) - range.start;
  contents.size = range.map_size;
  SharedLabel label;
  if (!read_label(contents.descriptor, &label)) return cuda::kOperatingSystem;  // the program has closed it
  contents.serial = label.serial;
  memset(handle, 0, sizeof(*handle));
  memcpy(handle->reserved, &contents, sizeof(contents));
  return cuda::kSuccess;
}

// The exporter's file by its descriptor there; -1 when that process is gone or has freed the memory.
static int open_exported(const Contents &contents, SharedLabel *label) {
  char path[64];
  snprintf(path, sizeof(path), "/proc/%d/fd/%d", contents.pid, contents.descriptor);
  const int descriptor = open(path, O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return -1;
  if (read_label(descriptor, label) && label->size == contents.size && label->serial == contents.serial && contents.offset < label->size) return descriptor;
  close(descriptor);
  return -1;
}

Error import_memory(const cuda::IpcHandle &handle, void **pointer) {
  Contents contents;
  SharedLabel label;
  if (pointer == nullptr || !read(handle, kMemoryMagic, &contents)) return cuda::kInvalidValue;
  int device = -1;
  const int descriptor = open_exported(contents, &label);
  if (descriptor < 0) return cuda::kInvalidValue;
  for (int d = 0; d < state.visible_count; ++d)
    if (book_device(d) == label.device) device = d;
  if (device < 0) {
    close(descriptor);
    return cuda::kInvalidDevice;
  }
  const size_t size = contents.size;
  void *address = map_address_space(size);
  const uintptr_t start = reinterpret_cast<uintptr_t>(address);
  const Range range{start, size, size, 0, nullptr, 0, static_cast<int16_t>(device), RangeKind::imported, 0};
  const bool mapped = address != nullptr && map_shared(descriptor, 0, start, size) && insert_range(range);
  close(descriptor);
  if (!mapped) {
    if (address != nullptr) unmap_address_space(address, size);
    return cuda::kOperatingSystem;
  }
  *pointer = static_cast<char *>(address) + contents.offset;
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
  const Contents contents = begin(kEventMagic);
  memset(handle, 0, sizeof(*handle));
  memcpy(handle->reserved, &contents, sizeof(contents));
  return cuda::kSuccess;
}

// Work completes at once, so another process's event is always a completed one.
Error import_event(const cuda::IpcHandle &handle, void **event) {
  Contents contents;
  if (!read(handle, kEventMagic, &contents)) return cuda::kInvalidValue;
  const Error error = create_event(2, event);  // cudaEventDisableTiming, which IPC events must have
  if (error == cuda::kSuccess) record_event(*event, nullptr);
  return error;
}

}  // namespace gpumem::virtual_gpu
