// SPDX-License-Identifier: Apache-2.0
// CUPTI as PyTorch's profiler uses it: it starts, delivers no device activity, and ends. Runs in the job's processes.
// What only switches something on or off is success by names/cupti.def; counters and metrics are reported as missing.
#include <time.h>

#include "estimator/virtual_gpu/libraries/handles.h"

using namespace gpumem::virtual_gpu;
using namespace gpumem::virtual_gpu::libraries;

namespace {
enum : int { kSuccess = 0, kInvalidParameter = 1, kMaxLimitReached = 12, kNotInitialized = 15 };
// The real library is never asked: that of 13.2 looks for the driver's private tables first, without end where there are none.
const char *const kNewest[] = {"libcupti.so.13", nullptr};
constexpr HandleRules kSubscribers = {kCupti, kInvalidParameter, kInvalidParameter, kNotInitialized, kNotInitialized};
}  // namespace

GPUMEM_EXPORT int cuptiGetVersion(uint32_t *version) {
  if (version == nullptr) return kInvalidParameter;
  *version = loaded_library(kNewest) != nullptr ? 130001 : 22;  // CUPTI_API_VERSION of CUDA 13.0 and 12.4
  return kSuccess;
}
GPUMEM_EXPORT int cuptiGetTimestamp(uint64_t *nanoseconds) {
  if (nanoseconds == nullptr) return kInvalidParameter;
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  *nanoseconds = static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
  return kSuccess;
}
GPUMEM_EXPORT int cuptiSubscribe(void **subscriber, void *, void *) { return create_object(kSubscribers, subscriber); }
GPUMEM_EXPORT int cuptiUnsubscribe(void *subscriber) { return destroy_handle(kSubscribers, subscriber); }
GPUMEM_EXPORT int cuptiActivityGetNextRecord(uint8_t *, size_t, void **) { return kMaxLimitReached; }
GPUMEM_EXPORT int cuptiActivityGetNumDroppedRecords(void *, uint32_t, size_t *dropped) {
  if (dropped == nullptr) return kInvalidParameter;
  *dropped = 0;
  return kSuccess;
}
GPUMEM_EXPORT int cuptiActivityPopExternalCorrelationId(int, uint64_t *last) {
  if (last != nullptr) *last = 0;
  return kSuccess;
}
GPUMEM_EXPORT int cuptiGetDeviceId(void *, uint32_t *device) {
  if (device == nullptr) return kInvalidParameter;
  *device = static_cast<uint32_t>(current_device());
  return kSuccess;
}
GPUMEM_EXPORT int cuptiGetLastError() { return kSuccess; }
GPUMEM_EXPORT int cuptiGetResultString(int result, const char **text) {
  if (text == nullptr) return kInvalidParameter;
  *text = result == kSuccess ? "CUPTI_SUCCESS" : "CUPTI_ERROR on a virtual GPU";
  return kSuccess;
}
GPUMEM_EXPORT int cuptiGetErrorMessage(int result, const char **text) { return cuptiGetResultString(result, text); }
