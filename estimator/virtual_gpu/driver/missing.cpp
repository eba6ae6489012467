// SPDX-License-Identifier: Apache-2.0
// CUDA driver: every name of the API that nothing else here defines records itself and says CUDA_ERROR_NOT_SUPPORTED.
// Part of libgpumem_vgpu.so, preloaded into jobs. See runtime/missing.cpp.

#include "estimator/virtual_gpu/internal.h"

namespace {
int missing(const char *function) {
  gpumem::virtual_gpu::report_missing(function);
  return 801;  // CUDA_ERROR_NOT_SUPPORTED
}
}  // namespace

#define F(name) \
  GPUMEM_EXPORT_WEAK int name() { return missing(#name); }
#include "estimator/cuda_interface/driver_functions.def"
