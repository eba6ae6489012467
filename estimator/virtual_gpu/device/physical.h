// SPDX-License-Identifier: Apache-2.0
// Virtual memory management: physical memory, address reservations, mappings (expandable segments). Part of libgpumem_vgpu.so.
//
// A physical allocation is charged when it is made and discharged when its handle has been released and its last mapping
// is gone, as with the driver. A reservation is inaccessible address space; mapping makes its part readable and writable
// (access rights are not kept apart), unmapping gives the pages back. One physical allocation that is exported or mapped twice
// has the same small contents everywhere: Note [Shared contents] in shared.h. Sizes and addresses are multiples of 2 MiB. Host memory (CU_MEM_LOCATION_TYPE_HOST…) costs no device memory.
#pragma once

#include "estimator/virtual_gpu/device/memory.h"

namespace gpumem::virtual_gpu {

struct Physical {
  uint32_t kind;
  int device;            // -1: host memory
  size_t size;
  uint32_t references;   // the handle's (one, plus retains) and one a mapping
  uint32_t imported;     // from another process, which pays for it
  int descriptor;        // of its file once it is shared; -1: private
  uintptr_t mapped_at;   // its first mapping; 0: none
  uint32_t multicast_devices;  // of a multicast object: how many it is for (multicast.h); 0: memory
  uint32_t added_devices;      // bit n: device n was added
  struct Binding *bindings;
  cuda::PhysicalProperties properties;
};

Error reserve_addresses(uintptr_t *address, size_t bytes, size_t alignment, uintptr_t wish);
Error free_addresses(uintptr_t address, size_t bytes);
Error create_physical(Physical **handle, size_t bytes, const cuda::PhysicalProperties &properties);
Physical *find_physical(uint64_t handle);
// Sharing with other processes of the book by file descriptor.
Error export_physical(Physical *physical, int *descriptor);
Error import_physical(int descriptor, Physical **handle);
void release_physical(Physical *physical);
Error map_physical(uintptr_t address, size_t bytes, size_t offset, Physical *physical);
Error unmap_physical(uintptr_t address, size_t bytes);
bool is_mapped(uintptr_t address, size_t bytes);

}  // namespace gpumem::virtual_gpu
