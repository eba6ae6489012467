// SPDX-License-Identifier: Apache-2.0
// CUDA IPC between processes of one book: memory and events. Part of libgpumem_vgpu.so.
// An imported allocation is address space of the same size that costs nothing in the book (its owner pays); contents are
// not shared: it reads as zero. A handle of another book, or from the same process, is refused as CUDA refuses it.
#pragma once

#include "estimator/virtual_gpu/device/memory.h"

namespace gpumem::virtual_gpu {

Error export_memory(cuda::IpcHandle *handle, void *pointer);
Error import_memory(const cuda::IpcHandle &handle, void **pointer);
Error close_imported(void *pointer);
Error export_event(cuda::IpcHandle *handle, void *event);
Error import_event(const cuda::IpcHandle &handle, void **event);

}  // namespace gpumem::virtual_gpu
