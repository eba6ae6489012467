// SPDX-License-Identifier: Apache-2.0
// What the files of driver/ share: the CUDA driver API (libcuda.so.1) of the virtual GPU.
// Symbols carry their version in their name (cuMemAlloc_v2), so one definition serves all CUDA generations; DRIVER_ALIAS
// gives further names (per-thread streams: _ptsz, _ptds) the same code. What we lack is a weak stub in missing.cpp.
// libcuda.so.1 itself is an ELF file without code that depends on libgpumem_vgpu.so.
#pragma once

#include "estimator/virtual_gpu/device/memory.h"
#include "estimator/virtual_gpu/device/streams.h"

#define DRIVER_ALIAS(other, name) \
  extern "C" __typeof__(name) other __attribute__((visibility("default"), alias(#name)))

namespace gpumem::virtual_gpu {

// The function behind a name of cuGetProcAddress for a CUDA version. `status`: 0 found, 1 no such name, 2 needs a newer
// version. flags: 2 asks for the per-thread default stream's variant. Names that we only know as missing are found too:
// their stub records the call.
void *find_driver_function(const char *name, int version, unsigned long long flags, int *status);

// The device behind a CUcontext; -1 when it is none.
int context_device(const void *context);
void *primary_context(int device);

}  // namespace gpumem::virtual_gpu

using namespace gpumem::virtual_gpu;
namespace cuda = gpumem::cuda;
namespace book = gpumem::book;
