// SPDX-License-Identifier: Apache-2.0
// cuRAND's host interface: generators and versions. Generating is success by names/curand.def. In the job's processes.
// PyTorch uses cuRAND inside its own kernels only; this is for other programs.
#include "estimator/virtual_gpu/libraries/handles.h"

using namespace gpumem::virtual_gpu;
using namespace gpumem::virtual_gpu::libraries;

namespace {
enum : int { kSuccess = 0, kNotInitialized = 101, kAllocFailed = 102, kOutOfRange = 104, kInitializationFailed = 203 };
const char *const kSonames[] = {"libcurand.so.10", nullptr};
constexpr LibraryVersion kVersion = {kSonames, "curandGetProperty", {10, 0, 0}, kOutOfRange};
constexpr HandleRules kHandles = {kCurand, kNotInitialized, kOutOfRange, kInitializationFailed, kAllocFailed};
int accept(const void *generator) { return cast(generator, kCurand) != nullptr ? kSuccess : kNotInitialized; }
}  // namespace

GPUMEM_EXPORT int curandCreateGenerator(void **out, int) { return create_handle(kHandles, out); }
GPUMEM_EXPORT int curandDestroyGenerator(void *generator) { return destroy_handle(kHandles, generator); }
GPUMEM_EXPORT int curandSetStream(void *generator, Stream stream) { return set_stream(kHandles, generator, stream); }
GPUMEM_EXPORT int curandSetPseudoRandomGeneratorSeed(void *generator, unsigned long long) { return accept(generator); }
GPUMEM_EXPORT int curandSetGeneratorOffset(void *generator, unsigned long long) { return accept(generator); }
GPUMEM_EXPORT int curandSetGeneratorOrdering(void *generator, int) { return accept(generator); }
GPUMEM_EXPORT int curandSetQuasiRandomGeneratorDimensions(void *generator, unsigned) { return accept(generator); }
GPUMEM_EXPORT int curandGenerateSeeds(void *generator) { return accept(generator); }
GPUMEM_EXPORT int curandGetProperty(int part, int *value) { return library_property(kVersion, part, value); }
GPUMEM_EXPORT int curandGetVersion(int *version) {
  using Function = int (*)(int *);
  if (version == nullptr) return kOutOfRange;
  if (auto real = reinterpret_cast<Function>(loaded_function(kSonames, "curandGetVersion"))) return real(version);
  *version = 10300;
  return kSuccess;
}
