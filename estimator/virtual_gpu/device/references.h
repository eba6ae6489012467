// SPDX-License-Identifier: Apache-2.0
// Texture and surface references (CUDA 11; the driver has them still): variables of a program's code that memory is bound to, before
// there were texture objects. Part of libgpumem_vgpu.so. Only kernels read through them: what is kept is what a program may ask.
//
// The runtime knows one by the address of its host variable, which the compiler registers; the driver by a handle, one for each
// module and name. A reference takes no memory and does not keep what it is bound to.
#pragma once

#include "estimator/virtual_gpu/device/arrays.h"
#include "estimator/virtual_gpu/device/memory.h"

namespace gpumem::virtual_gpu {

// Errors of the runtime alone.
constexpr Error kInvalidTexture = static_cast<Error>(18), kInvalidTextureBinding = static_cast<Error>(19), kInvalidSurface = static_cast<Error>(37);

struct Reference {
  uint32_t kind, surface;
  Reference *next;
  const void *owner;         // the host variable, or the module; nullptr: made by cuTexRefCreate
  char *name;                // in the module
  uint64_t address;          // what it is bound to: one of these three, or nothing
  void *array, *mipmapped;
  unsigned format, channels;
  int address_modes[3], filter, mipmap_filter;
  float bias, least_level, most_level;
  unsigned anisotropy, flags;
  float border[4];
};

// At load time: takes a note only.
void register_reference(const void *variable, unsigned surface);
// The reference of a host variable; nullptr where the compiler registered none.
Reference *registered_reference(const void *variable, unsigned surface);
// That of a module's name, made at the first question.
Reference *module_reference(const void *module, const char *name, unsigned surface);
Reference *new_reference();
Reference *find_reference(const void *handle, unsigned surface);
Error delete_reference(void *handle);  // one of cuTexRefCreate

void bind_nothing(Reference *reference);
// Linear memory that a device reaches. `offset`, which may be null where it is 0, gets the bytes before the pointer in its 512.
Error bind_address(Reference *reference, uint64_t address, size_t bytes, size_t *offset);
Error bind_array(Reference *reference, const void *array);
Error bind_mipmapped(Reference *reference, const void *mipmapped);

}  // namespace gpumem::virtual_gpu
