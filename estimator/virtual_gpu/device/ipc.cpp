// SPDX-License-Identifier: Apache-2.0
// CUDA IPC. Part of libgpumem_vgpu.so, preloaded into jobs.

#include "estimator/virtual_gpu/device/ipc.h"

#include <string.h>
#include <unistd.h>

#include "estimator/virtual_gpu/device/objects.h"
#include "estimator/virtual_gpu/device/streams.h"

namespace gpumem::virtual_gpu {
namespace {

constexpr uint64_t kMemoryMagic = 0x314d454d43504947;  // "GIPCMEM1"
constexpr uint64_t kEventMagic = 0x3156454543504947;   // "GIPCEEV1"

struct Contents {
  uint64_t magic;
  uint64_t file_device, file_inode;  // the book
  int32_t pid;
  int32_t device;                    // the book's
  uint64_t address, offset, size;
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
  contents.device = book_device(range.device);
  contents.address = range.start;
  contents.offset = reinterpret_cast<uintptr_t>(pointer) - range.start;
  contents.size = range.size;
  memset(handle, 0, sizeof(*handle));
  memcpy(handle->reserved, &contents, sizeof(contents));
  return cuda::kSuccess;
}

Error import_memory(const cuda::IpcHandle &handle, void **pointer) {
  Contents contents;
  if (pointer == nullptr || !read(handle, kMemoryMagic, &contents)) return cuda::kInvalidValue;
  void *address = map_address_space(contents.size);
  const Range range{reinterpret_cast<uintptr_t>(address), contents.size, contents.size, 0, nullptr, 0,
                    static_cast<int16_t>(thread_state.device), RangeKind::imported, 0};
  if (address == nullptr || !insert_range(range)) return cuda::kOperatingSystem;
  *pointer = static_cast<char *>(address) + contents.offset;
  return cuda::kSuccess;
}

Error close_imported(void *pointer) {
  const Range range = find_range(pointer);
  if (range.kind != RangeKind::imported) return cuda::kInvalidValue;
  remove_range(range.start, RangeKind::imported);
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
