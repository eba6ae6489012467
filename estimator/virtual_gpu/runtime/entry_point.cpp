// SPDX-License-Identifier: Apache-2.0
// CUDA runtime: driver functions by name. Part of libgpumem_vgpu.so, preloaded into jobs.
// A missing one is told through the status, not as an error, as in CUDA.

#include "estimator/virtual_gpu/driver/driver.h"
#include "estimator/virtual_gpu/runtime/runtime.h"

static int entry_point(const char *name, void **function, unsigned version, unsigned long long flags, int *status) {
  if (name == nullptr || function == nullptr) return done(cuda::kInvalidValue);
  int found = 0;
  *function = find_driver_function(name, static_cast<int>(version), flags, &found);
  if (status != nullptr) *status = found;
  // Without a status to write to (CUDA 11), absence is an error.
  if (*function == nullptr && status == nullptr) return done(cuda::kNotFound);
  return cuda::kSuccess;
}

// The runtime's own version is the one asked for.
VERSIONED(cudaGetDriverEntryPoint, CUDA11) int cudaGetDriverEntryPoint_cuda11(const char *name, void **function, unsigned long long flags) {
  return entry_point(name, function, 11080, flags, nullptr);
}
VERSIONED(cudaGetDriverEntryPoint, CUDA12)
int cudaGetDriverEntryPoint_cuda12(const char *name, void **function, unsigned long long flags, int *status) {
  return entry_point(name, function, 12040, flags, status);
}
VERSIONED(cudaGetDriverEntryPoint, CUDA13)
int cudaGetDriverEntryPoint_cuda13(const char *name, void **function, unsigned long long flags, int *status) {
  return entry_point(name, function, 13000, flags, status);
}
GPUMEM_EXPORT int cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                                   unsigned long long flags, int *status) {
  return entry_point(name, function, version, flags, status);
}
