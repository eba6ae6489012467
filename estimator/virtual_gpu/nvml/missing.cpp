// SPDX-License-Identifier: Apache-2.0
// NVML: every name that nvml.cpp does not define records itself and says NVML_ERROR_NOT_SUPPORTED.
// Part of libgpumem_vgpu.so, preloaded into jobs. See runtime/missing.cpp.

#include "estimator/virtual_gpu/internal.h"

namespace {
int missing(const char *function) {
  gpumem::virtual_gpu::report_missing(function);
  return 3;  // NVML_ERROR_NOT_SUPPORTED
}
}  // namespace

#define F(name) \
  GPUMEM_EXPORT_WEAK int name() { return missing(#name); }
#include "estimator/cuda_interface/nvml_functions.def"
