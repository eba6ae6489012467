// SPDX-License-Identifier: Apache-2.0
// CUDA IPC between processes of one book: memory and events. Part of libgpumem_vgpu.so.
// An imported allocation costs nothing in the book (its owner pays) and has the owner's small contents: Note [Shared contents] in
// shared.h. A handle of another book, from the same process or of memory that is gone is refused as CUDA refuses it.
#pragma once

#include "estimator/virtual_gpu/device/memory.h"

namespace gpumem::virtual_gpu {

Error export_memory(cuda::IpcHandle *handle, void *pointer);
Error import_memory(const cuda::IpcHandle &handle, void **pointer);
Error close_imported(void *pointer);
Error export_event(cuda::IpcHandle *handle, void *event);
Error import_event(const cuda::IpcHandle &handle, void **event);

}  // namespace gpumem::virtual_gpu
