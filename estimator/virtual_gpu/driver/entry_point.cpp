// SPDX-License-Identifier: Apache-2.0
// CUDA driver: functions by name, and the private table that we refuse. Part of libgpumem_vgpu.so, preloaded into jobs.

#include <stdio.h>
#include <string.h>

#include "estimator/virtual_gpu/driver/driver.h"

// Declared without parameters: only the addresses are wanted here.
#define F(name) extern "C" int name();
namespace addresses {
#include "estimator/cuda_interface/driver_functions.def"
}
#undef F

namespace {

struct EntryPoint {
  const char *name;
  int version;
  int (*function)();
  int (*per_thread)();
};

constexpr EntryPoint kEntryPoints[] = {
#define P(name, version, symbol, per_thread) {name, version, addresses::symbol, addresses::per_thread},
#include "estimator/cuda_interface/driver_entry_points.def"
#undef P
};

}  // namespace

namespace gpumem::virtual_gpu {

void *find_driver_function(const char *name, int version, unsigned long long flags, int *status) {
  // Sorted by name, then version: the last that is not too new.
  size_t low = 0, high = sizeof(kEntryPoints) / sizeof(kEntryPoints[0]);
  const size_t count = high;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (strcmp(kEntryPoints[middle].name, name) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  const EntryPoint *best = nullptr;
  const EntryPoint *first = low < count && strcmp(kEntryPoints[low].name, name) == 0 ? &kEntryPoints[low] : nullptr;
  for (size_t at = low; at < count && strcmp(kEntryPoints[at].name, name) == 0 && kEntryPoints[at].version <= version; ++at)
    best = &kEntryPoints[at];
  *status = best != nullptr ? 0 : first != nullptr ? 2 : 1;
  constexpr unsigned long long kPerThread = 2;  // CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
  if (best == nullptr) return nullptr;
  return reinterpret_cast<void *>(flags & kPerThread ? best->per_thread : best->function);
}

}  // namespace gpumem::virtual_gpu

// Of the symbols with these names the definitions with parameters are in this file, under C linkage.
static int get_proc_address(const char *name, void **function, int version, unsigned long long flags, int *status) {
  if (name == nullptr || function == nullptr) return cuda::kInvalidValue;
  int found = 0;
  *function = find_driver_function(name, version, flags, &found);
  if (status != nullptr) *status = found;
  return *function != nullptr ? cuda::kSuccess : cuda::kNotFound;
}

GPUMEM_EXPORT int gpumem_cuGetProcAddress(const char *name, void **function, int version, unsigned long long flags) __asm__("cuGetProcAddress");
int gpumem_cuGetProcAddress(const char *name, void **function, int version, unsigned long long flags) {
  return get_proc_address(name, function, version, flags, nullptr);
}
GPUMEM_EXPORT int gpumem_cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long long flags, int *status) __asm__("cuGetProcAddress_v2");
int gpumem_cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long long flags, int *status) {
  return get_proc_address(name, function, version, flags, status);
}

// NVIDIA's private interface between its runtime and its driver: whoever asks is a real CUDA runtime that was linked
// statically or reached through a library handle. It cannot work on a virtual GPU, and the estimate must say so.
GPUMEM_EXPORT int gpumem_cuGetExportTable(const void **table, const void *) __asm__("cuGetExportTable");
int gpumem_cuGetExportTable(const void **table, const void *) {
  // The real cuDNN, which plans for us (libraries/cudnn_real.h), looks too, with the cuBLAS that it brings, and NVRTC, which
  // compiles kernels for the program: they do without, and that is no lack of ours.
  char caller[64];
  library_of(__builtin_return_address(0), caller, sizeof(caller));
  if (strncmp(caller, "libcudnn", 8) != 0 && strncmp(caller, "libcublas", 9) != 0 && strncmp(caller, "libnvrtc", 8) != 0) {
    char text[96];
    snprintf(text, sizeof(text), "cuGetExportTable (asked by %s)", caller);
    report_missing(text);
  }
  if (table != nullptr) *table = nullptr;
  return cuda::kNotFound;
}
