// SPDX-License-Identifier: Apache-2.0
// What the files of runtime/ share: the CUDA runtime API (libcudart.so.11.0, .12 and .13) of the virtual GPU.
//
// Note [Versions]
// An unversioned symbol of a preloaded library satisfies a reference to any version (cudaMalloc@libcudart.so.12), so one
// definition serves all generations. Where a generation changed a signature or a struct under the same name, there is
// one definition a version, named with VERSIONED; vgpu.map declares the versions. Functions with a suffix of their own
// (_v2, _ptsz) are just names. What we lack is a weak stub in missing.cpp.
#pragma once

#include "estimator/virtual_gpu/device/memory.h"
#include "estimator/virtual_gpu/device/streams.h"

// A definition for one CUDA generation. `@@` marks the one that a program without versions gets (dlsym, ctypes).
#define VERSIONED(name, version) GPUMEM_EXPORT __attribute__((symver(#name version)))
#define CUDA11 "@libcudart.so.11.0"
#define CUDA12 "@libcudart.so.12"
#define CUDA13 "@@libcudart.so.13"

namespace gpumem::virtual_gpu {

// Keeps an error for cudaGetLastError, as every runtime function does.
inline int done(Error error) {
  if (error != cuda::kSuccess) thread_state.last_error = error;
  return error;
}

}  // namespace gpumem::virtual_gpu

using namespace gpumem::virtual_gpu;
namespace cuda = gpumem::cuda;
namespace book = gpumem::book;
