// SPDX-License-Identifier: Apache-2.0
// CUDA runtime: every exported name that nothing else here defines records itself and says cudaErrorNotSupported.
// Part of libgpumem_vgpu.so, preloaded into jobs.
//
// Each stub is a weak symbol: a real definition in another file of the library takes its place. Arguments are not looked
// at, so one signature serves all (the caller cleans up in every calling convention that CUDA has).

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
