// SPDX-License-Identifier: Apache-2.0
// Device memory whose contents several processes see (CUDA IPC, exported physical memory). Part of libgpumem_vgpu.so.
//
// Note [Shared contents]
// Memory is private until somebody exports it. Then its touched pages move into a memory file, which takes the place of the
// mapping under the same addresses; whoever imports maps that file: through /proc/PID/fd/N of the exporter (IPC handles), or
// through the descriptor itself (VMM). The last page of the file says what it is. It is memory of the host alone: the owner's
// account in the book stays as it was, importers pay nothing. Nothing is left when the processes have ended.
// Small contents are shared byte for byte. Large copies touch no page (Note [Contents]), so in other processes they read as zero;
// and as writes of other processes are not seen, small bytes of shared memory are believed even without a tracer.
#pragma once

#include "estimator/virtual_gpu/device/state.h"

namespace gpumem::virtual_gpu {

struct SharedLabel {
  uint64_t magic;
  uint64_t size;               // without the label's page
  uint64_t book_device, book_inode;
  int32_t device;              // the book's; -1: host memory
  int32_t multicast_devices;   // of a multicast object, else 0
  uint64_t serial;             // no two files of a process have the same
};

// Makes a memory file of that size with its label; -1 with the failure noted.
int make_shared_file(size_t size, int device, int multicast_devices = 0);
// The label of a descriptor that make_shared_file made for this book; false when it is none.
bool read_label(int descriptor, SharedLabel *label);

// Moves private memory at [start, start+size) into a shared file, mapped in its place, once; the file's descriptor, or -1.
int share_memory(uintptr_t start, size_t size, int device);
// Writes what private memory has in touched pages into a shared file.
bool write_touched(int descriptor, uintptr_t start, size_t size);
// Maps a part of a shared file over [start, start+size), which is address space of ours.
bool map_shared(int descriptor, size_t offset, uintptr_t start, size_t size);
// The mapping that begins at `start` ends: its file is forgotten here.
void forget_shared(uintptr_t start);
// Whether the address lies in memory that was shared by share_memory or map_shared.
bool is_shared(const void *address);

}  // namespace gpumem::virtual_gpu
