// SPDX-License-Identifier: Apache-2.0
// CUDA runtime: execution contexts, CUDA 13.1's names for the driver's green and primary contexts (driver/green.cpp). Part of
// libgpumem_vgpu.so, preloaded into jobs.

#include "estimator/virtual_gpu/runtime/runtime.h"

// The driver's functions have the same arguments; a resource is the same structure.
extern "C" {
int cuDeviceGetDevResource(int, void *, int);
int cuDevSmResourceSplitByCount(void *, unsigned *, const void *, void *, unsigned, unsigned);
int cuDevResourceGenerateDesc(void **, const void *, unsigned);
int cuGreenCtxCreate(void **, void *, int, unsigned);
int cuGreenCtxDestroy(void *);
int cuGreenCtxGetDevResource(const void *, void *, int);
int cuGreenCtxStreamCreate(Stream *, void *, unsigned, int);
int cuGreenCtxRecordEvent(void *, void *);
int cuGreenCtxWaitEvent(void *, void *);
int cuGreenCtxGetId(const void *, unsigned long long *);
int cuCtxFromGreenCtx(void **, void *);
int cuCtxGetDevResource(const void *, void *, int);
int cuCtxGetDevice_v2(int *, void *);
int cuCtxGetId(void *, unsigned long long *);
int cuCtxRecordEvent(void *, void *);
int cuCtxWaitEvent(void *, void *);
int cuCtxSynchronize_v2(void *);
int cuDevicePrimaryCtxRetain(void **, int);
int cudaStreamCreateWithPriority(Stream *, unsigned, int);
int cuStreamGetDevResource(Stream, void *, int);
}

static int as_runtime(int error) { return done(static_cast<Error>(error)); }
// An execution context is a green one or a device's primary one. The primary context behind it; nullptr: it is neither.
static void *context_behind(void *context, bool *green) {
  void *primary = nullptr;
  int device;
  *green = cuCtxFromGreenCtx(&primary, context) == cuda::kSuccess;
  if (*green) return primary;
  return context != nullptr && cuCtxGetDevice_v2(&device, context) == cuda::kSuccess ? context : nullptr;
}
// Asks the one or the other kind.
template <class Green, class Primary>
static int ask(void *context, const Green &of_green, const Primary &of_primary) {
  bool green = false;
  if (context_behind(context, &green) == nullptr) return done(cuda::kInvalidValue);
  return as_runtime(green ? of_green() : of_primary());
}

GPUMEM_EXPORT int cudaDeviceGetDevResource(int device, void *resource, int type) { return as_runtime(cuDeviceGetDevResource(device, resource, type)); }
GPUMEM_EXPORT int cudaDevSmResourceSplitByCount(void *groups, unsigned *count, const void *input, void *remaining, unsigned flags, unsigned least) {
  return as_runtime(cuDevSmResourceSplitByCount(groups, count, input, remaining, flags, least));
}
GPUMEM_EXPORT int cudaDevResourceGenerateDesc(void **description, void *resources, unsigned count) {
  return as_runtime(cuDevResourceGenerateDesc(description, resources, count));
}
GPUMEM_EXPORT int cudaGreenCtxCreate(void **context, void *description, int device, unsigned) {
  return as_runtime(cuGreenCtxCreate(context, description, device, 1));  // the driver's only flag: streams are not blocking
}
GPUMEM_EXPORT int cudaDeviceGetExecutionCtx(void **context, int device) {
  return as_runtime(context == nullptr ? static_cast<int>(cuda::kInvalidValue) : cuDevicePrimaryCtxRetain(context, device));
}
GPUMEM_EXPORT int cudaExecutionCtxDestroy(void *context) {
  return ask(context, [=] { return cuGreenCtxDestroy(context); }, [] { return static_cast<int>(cuda::kInvalidValue); });
}
GPUMEM_EXPORT int cudaExecutionCtxGetDevResource(void *context, void *resource, int type) {
  return ask(context, [=] { return cuGreenCtxGetDevResource(context, resource, type); }, [=] { return cuCtxGetDevResource(context, resource, type); });
}
GPUMEM_EXPORT int cudaExecutionCtxGetDevice(int *device, void *context) {
  bool green = false;
  void *primary = context_behind(context, &green);
  return as_runtime(primary == nullptr ? static_cast<int>(cuda::kInvalidValue) : cuCtxGetDevice_v2(device, primary));
}
GPUMEM_EXPORT int cudaExecutionCtxGetId(void *context, unsigned long long *id) {
  return ask(context, [=] { return cuGreenCtxGetId(context, id); }, [=] { return cuCtxGetId(context, id); });
}
GPUMEM_EXPORT int cudaExecutionCtxStreamCreate(Stream *stream, void *context, unsigned flags, int priority) {
  return ask(context, [=] { return cuGreenCtxStreamCreate(stream, context, flags | 1, priority); },
             [=] { return cudaStreamCreateWithPriority(stream, flags, priority); });
}
GPUMEM_EXPORT int cudaExecutionCtxSynchronize(void *context) {
  bool green = false;
  void *primary = context_behind(context, &green);
  return as_runtime(primary == nullptr ? static_cast<int>(cuda::kInvalidValue) : cuCtxSynchronize_v2(primary));
}
GPUMEM_EXPORT int cudaExecutionCtxRecordEvent(void *context, void *event) {
  return ask(context, [=] { return cuGreenCtxRecordEvent(context, event); }, [=] { return cuCtxRecordEvent(context, event); });
}
GPUMEM_EXPORT int cudaExecutionCtxWaitEvent(void *context, void *event) {
  return ask(context, [=] { return cuGreenCtxWaitEvent(context, event); }, [=] { return cuCtxWaitEvent(context, event); });
}
GPUMEM_EXPORT int cudaStreamGetDevResource(Stream stream, void *resource, int type) { return as_runtime(cuStreamGetDevResource(stream, resource, type)); }
GPUMEM_EXPORT int cudaStreamGetDevResource_ptsz(Stream stream, void *resource, int type) { return cudaStreamGetDevResource(stream, resource, type); }
