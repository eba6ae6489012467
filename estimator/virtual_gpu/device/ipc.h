// SPDX-License-Identifier: Apache-2.0
// CUDA IPC between processes of one book: memory and events. Part of libgpumem_vgpu.so.
// An imported allocation costs nothing in the book (its owner pays) and has the owner's small contents: Note [Shared contents] in
// shared.h. A handle of another book, from the same process or of memory that is gone is refused as CUDA refuses it.
#pragma once

#include "estimator/virtual_gpu/device/memory.h"

namespace gpumem::virtual_gpu {

// What a handle says: memory of a process of this book, by the file behind it there. Fits CUDA's 64 bytes.
struct SharedPlace {
  uint64_t magic;
  uint64_t file_device, file_inode;  // the book
  int32_t pid;
  int32_t descriptor;                // of the memory's file in that process
  uint64_t offset, size;
  uint64_t serial;                   // of the file: the descriptor may be another one's by now
};
static_assert(sizeof(SharedPlace) <= sizeof(cuda::IpcHandle));
constexpr uint64_t kMemoryPlace = 0x314d454d43504947, kPoolPlace = 0x314c4f4f43504947;  // "GIPCMEM1", "GIPCOOL1"
// `size` bytes from the pointer on, in the range; it becomes shared memory.
Error describe_shared(uint64_t magic, const Range &range, const void *pointer, size_t size, SharedPlace *place);
// The exporter's file by its descriptor there; -1 when it is no such place, that process is gone or has freed the memory.
int open_shared(uint64_t magic, const SharedPlace &place, struct SharedLabel *label);

Error export_memory(cuda::IpcHandle *handle, void *pointer);
Error import_memory(const cuda::IpcHandle &handle, void **pointer);
Error close_imported(void *pointer);
Error export_event(cuda::IpcHandle *handle, void *event);
Error import_event(const cuda::IpcHandle &handle, void **event);

}  // namespace gpumem::virtual_gpu
