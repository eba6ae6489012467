// SPDX-License-Identifier: Apache-2.0
// Multicast objects (cuMulticastCreate …): one address through which memory of several devices is written. Part of libgpumem_vgpu.so.
//
// An object is a handle like that of physical memory: it is mapped, exported and released by the same functions, but has no
// memory of its own and costs nothing. Devices are added to it, then memory that exists is bound, which keeps that memory
// alive as a mapping does. Contents written through it do not reach what is bound: only kernels write there.
// An object that another process exported knows nothing of that process's devices and bindings.
#pragma once

#include "estimator/virtual_gpu/device/physical.h"

namespace gpumem::virtual_gpu {

struct MulticastProperties {  // CUmulticastObjectProp
  unsigned device_count;
  size_t size;
  unsigned long long handle_types, flags;
};

// Links of switches reach several devices at once: those of compute capability 9 and later on boards with NVLink.
bool has_multicast(int device);
Error create_multicast(const MulticastProperties &properties, Physical **object);
Error add_multicast_device(Physical *object, int device);
// `device` -1: the one that the memory is of.
Error bind_multicast(Physical *object, int device, size_t offset, Physical *memory, size_t memory_offset, size_t size);
Error unbind_multicast(Physical *object, int device, size_t offset, size_t size);
// All bindings end: the object's last reference is gone. Under no lock.
void unbind_all(Physical *object);

}  // namespace gpumem::virtual_gpu
