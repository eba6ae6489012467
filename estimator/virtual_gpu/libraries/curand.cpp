// SPDX-License-Identifier: Apache-2.0
// cuRAND's host interface: generators and versions. Generating is success by names/curand.def. In the job's processes.
// PyTorch uses cuRAND inside its own kernels only; this is for other programs.
#include "estimator/virtual_gpu/libraries/library.h"

using namespace gpumem::virtual_gpu;
using namespace gpumem::virtual_gpu::libraries;

namespace {
enum : int { kSuccess = 0, kNotInitialized = 101, kAllocFailed = 102, kOutOfRange = 104, kInitializationFailed = 203 };
const char *const kSonames[] = {"libcurand.so.10", nullptr};
int accept(const void *generator) { return cast(generator, kCurand) != nullptr ? kSuccess : kNotInitialized; }
}  // namespace

GPUMEM_EXPORT int curandCreateGenerator(void **out, int) {
  if (out == nullptr) return kOutOfRange;
  if (!ready() || !use_device(current_device())) return kInitializationFailed;
  *out = new_handle(kCurand);
  return *out != nullptr ? kSuccess : kAllocFailed;
}
GPUMEM_EXPORT int curandDestroyGenerator(void *generator) {
  Handle *found = cast(generator, kCurand);
  if (found == nullptr) return kNotInitialized;
  delete_handle(found);
  return kSuccess;
}
GPUMEM_EXPORT int curandSetStream(void *generator, Stream stream) {
  Handle *found = cast(generator, kCurand);
  if (found == nullptr) return kNotInitialized;
  found->stream = stream;
  return kSuccess;
}
GPUMEM_EXPORT int curandSetPseudoRandomGeneratorSeed(void *generator, unsigned long long) { return accept(generator); }
GPUMEM_EXPORT int curandSetGeneratorOffset(void *generator, unsigned long long) { return accept(generator); }
GPUMEM_EXPORT int curandSetGeneratorOrdering(void *generator, int) { return accept(generator); }
GPUMEM_EXPORT int curandSetQuasiRandomGeneratorDimensions(void *generator, unsigned) { return accept(generator); }
GPUMEM_EXPORT int curandGenerateSeeds(void *generator) { return accept(generator); }
GPUMEM_EXPORT int curandGetProperty(int type, int *value) {
  using Function = int (*)(int, int *);
  if (value == nullptr || type < 0 || type > 2) return kOutOfRange;
  if (auto real = reinterpret_cast<Function>(loaded_function(kSonames, "curandGetProperty"))) return real(type, value);
  *value = type == 0 ? 10 : 0;
  return kSuccess;
}
GPUMEM_EXPORT int curandGetVersion(int *version) {
  using Function = int (*)(int *);
  if (version == nullptr) return kOutOfRange;
  if (auto real = reinterpret_cast<Function>(loaded_function(kSonames, "curandGetVersion"))) return real(version);
  *version = 10300;
  return kSuccess;
}
