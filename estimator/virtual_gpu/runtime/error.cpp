// SPDX-License-Identifier: Apache-2.0
// CUDA runtime: errors and versions. Part of libgpumem_vgpu.so, preloaded into jobs.

#include "estimator/virtual_gpu/runtime/runtime.h"

namespace {

struct ErrorText {
  int value;
  const char *runtime_name;
  const char *driver_name;
  const char *text;
};
constexpr ErrorText kErrors[] = {
#define E(value, runtime_name, driver_name, text) {value, runtime_name, driver_name, text},
#include "estimator/cuda_interface/errors.def"
#undef E
};

const ErrorText *find_error(int error) {
  for (const ErrorText &known : kErrors)
    if (known.value == error) return &known;
  return nullptr;
}

}  // namespace

GPUMEM_EXPORT const char *cudaGetErrorName(int error) {
  const ErrorText *known = find_error(error);
  return known != nullptr && known->runtime_name[0] != '\0' ? known->runtime_name : "unrecognized error code";
}

GPUMEM_EXPORT const char *cudaGetErrorString(int error) {
  const ErrorText *known = find_error(error);
  return known != nullptr && known->text[0] != '\0' ? known->text : "unrecognized error code";
}

GPUMEM_EXPORT int cudaGetLastError() {
  const int error = thread_state.last_error;
  thread_state.last_error = cuda::kSuccess;
  return error;
}

GPUMEM_EXPORT int cudaPeekAtLastError() { return thread_state.last_error; }

GPUMEM_EXPORT int cuGetErrorName(int error, const char **name) {
  if (name == nullptr) return cuda::kInvalidValue;
  const ErrorText *known = find_error(error);
  *name = known != nullptr && known->driver_name[0] != '\0' ? known->driver_name : nullptr;
  return *name != nullptr ? cuda::kSuccess : cuda::kInvalidValue;
}

GPUMEM_EXPORT int cuGetErrorString(int error, const char **text) {
  if (text == nullptr) return cuda::kInvalidValue;
  const ErrorText *known = find_error(error);
  *text = known != nullptr && known->driver_name[0] != '\0' ? known->text : nullptr;
  return *text != nullptr ? cuda::kSuccess : cuda::kInvalidValue;
}

// What the driver supports: the book's. Without a virtual GPU 0, as without a driver.
GPUMEM_EXPORT int cudaDriverGetVersion(int *version) {
  if (version == nullptr) return done(cuda::kInvalidValue);
  *version = open_book() ? static_cast<int>(book::description(state.book, 0)->cuda_version) : 0;
  return cuda::kSuccess;
}

VERSIONED(cudaRuntimeGetVersion, CUDA11) int cudaRuntimeGetVersion_cuda11(int *version) {
  if (version == nullptr) return done(cuda::kInvalidValue);
  *version = 11080;
  return cuda::kSuccess;
}
VERSIONED(cudaRuntimeGetVersion, CUDA12) int cudaRuntimeGetVersion_cuda12(int *version) {
  if (version == nullptr) return done(cuda::kInvalidValue);
  *version = 12040;
  return cuda::kSuccess;
}
VERSIONED(cudaRuntimeGetVersion, CUDA13) int cudaRuntimeGetVersion_cuda13(int *version) {
  if (version == nullptr) return done(cuda::kInvalidValue);
  *version = 13000;
  return cuda::kSuccess;
}
