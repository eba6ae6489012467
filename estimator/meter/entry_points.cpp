// SPDX-License-Identifier: Apache-2.0
// The look-ups that hand out addresses of the driver's functions: Note [Ways to a function] in meter.h. Runs in a job's processes.
#include "estimator/meter/meter.h"

namespace gpumem::meter {
namespace {

enum : unsigned long long { kLegacy = 1, kPerThread = 2 };  // CU_GET_PROC_ADDRESS_…, cudaEnable…DefaultStream

// The runtime asks for the driver's functions of its own version.
int runtime_version() {
  int version = 0;
  return pass_on("cudaRuntimeGetVersion", &version) == 0 ? version : 0;
}

}  // namespace

GPUMEM_EXPORT int cuGetProcAddress(const char *name, void **function, int version, uint64_t flags) {
  const int status = pass_on("cuGetProcAddress", name, function, version, flags);
  if (status == 0) take_over(name, version, (flags & kPerThread) != 0, function);
  return status;
}
GPUMEM_EXPORT int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *found) {
  const int status = pass_on("cuGetProcAddress_v2", name, function, version, flags, found);
  if (status == 0) take_over(name, version, (flags & kPerThread) != 0, function);
  return status;
}
// CUDA 11 has no `found`: one argument more does no harm.
GPUMEM_EXPORT int cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags, int *found) {
  const int status = pass_on("cudaGetDriverEntryPoint", name, function, flags, found);
  if (status == 0) take_over(name, runtime_version(), (flags & kPerThread) != 0, function);
  return status;
}
GPUMEM_EXPORT int cudaGetDriverEntryPoint_ptsz(const char *name, void **function, unsigned long long flags, int *found) {
  const int status = pass_on("cudaGetDriverEntryPoint_ptsz", name, function, flags, found);
  if (status == 0) take_over(name, runtime_version(), (flags & kLegacy) == 0, function);
  return status;
}
GPUMEM_EXPORT int cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version, unsigned long long flags,
                                                   int *found) {
  const int status = pass_on("cudaGetDriverEntryPointByVersion", name, function, version, flags, found);
  if (status == 0) take_over(name, static_cast<int>(version), (flags & kPerThread) != 0, function);
  return status;
}
GPUMEM_EXPORT int cudaGetDriverEntryPointByVersion_ptsz(const char *name, void **function, unsigned version, unsigned long long flags,
                                                        int *found) {
  const int status = pass_on("cudaGetDriverEntryPointByVersion_ptsz", name, function, version, flags, found);
  if (status == 0) take_over(name, static_cast<int>(version), (flags & kLegacy) == 0, function);
  return status;
}

}  // namespace gpumem::meter
