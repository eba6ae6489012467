// SPDX-License-Identifier: Apache-2.0
// CUDA runtime: every exported name that nothing else here defines records itself and says cudaErrorNotSupported.
// Part of libgpumem_vgpu.so, preloaded into jobs.
//
// Each stub is a weak symbol: a real definition in another file of the library takes its place. Arguments are not looked
// at, so one signature serves all (the caller cleans up in every calling convention that CUDA has).
//
// Note [What stays missing] of the runtime and the driver, and why an answer would be a guess:
//   * another API's: graphics (OpenGL, EGL, VDPAU), NvSci, logical endpoints and fabric copies: nobody is at the other end;
//   * what only a kernel's image says, in notes that are not documented: how many kernels a library has and their names
//     (…EnumerateKernels, …EnumerateFunctions), sizes of arguments (…GetParamInfo), and so a graph's kernel nodes (…GetParams);
//   * sparse arrays and planes of arrays: arrays here are whole and of one plane;
//   * driver functions as they were before CUDA 3.2 (cuMemAlloc, cuMemcpyHtoD, cuLaunchGrid, …), whose pointers have 32 bits: headers
//     have named the _v2 for fifteen years;
//   * tools of a crash or of a whole process (core dumps, checkpoints, notifications), launches on several devices at once (gone
//     since CUDA 13), copies of boxes in batches, decompression.

#include "estimator/virtual_gpu/internal.h"

namespace {
int missing(const char *function) {
  gpumem::virtual_gpu::report_missing(function);
  return 801;  // cudaErrorNotSupported
}
}  // namespace

#define F(name) \
  GPUMEM_EXPORT_WEAK int name() { return missing(#name); }
#include "estimator/cuda_interface/runtime_functions.def"
