// SPDX-License-Identifier: Apache-2.0
// CUDA driver: streams, events, capture, graphs, launches. Part of libgpumem_vgpu.so, preloaded into jobs.

#include "estimator/virtual_gpu/device/objects.h"
#include "estimator/virtual_gpu/device/pools.h"
#include "estimator/virtual_gpu/driver/driver.h"

GPUMEM_EXPORT int cuStreamCreate(Stream *stream, unsigned flags) { return create_stream(flags, 0, stream); }
GPUMEM_EXPORT int cuStreamCreateWithPriority(Stream *stream, unsigned flags, int priority) { return create_stream(flags, priority, stream); }
GPUMEM_EXPORT int cuStreamDestroy_v2(Stream stream) { return destroy_stream(stream); }
GPUMEM_EXPORT int cuStreamQuery(Stream stream) {
  const Error error = check_stream(stream);
  return error != cuda::kSuccess ? error : is_capturing(stream) ? spoil_capture(stream) : query_stream(stream);
}
DRIVER_ALIAS(cuStreamQuery_ptsz, cuStreamQuery);
GPUMEM_EXPORT int cuStreamSynchronize(Stream stream) {
  const Error error = check_stream(stream);
  if (error != cuda::kSuccess) return error;
  if (is_capturing(stream)) return spoil_capture(stream);
  synchronize_stream(stream);
  trim_all_pools();
  return cuda::kSuccess;
}
DRIVER_ALIAS(cuStreamSynchronize_ptsz, cuStreamSynchronize);
GPUMEM_EXPORT int cuStreamWaitEvent(Stream stream, void *event, unsigned) { return wait_event(stream, event); }
DRIVER_ALIAS(cuStreamWaitEvent_ptsz, cuStreamWaitEvent);
GPUMEM_EXPORT int cuStreamGetPriority(Stream stream, int *priority) {
  if (priority == nullptr) return cuda::kInvalidValue;
  const StreamObject *object = find_stream(stream);
  *priority = object != nullptr ? object->priority : 0;
  return check_stream(stream);
}
DRIVER_ALIAS(cuStreamGetPriority_ptsz, cuStreamGetPriority);
GPUMEM_EXPORT int cuStreamGetFlags(Stream stream, unsigned *flags) {
  if (flags == nullptr) return cuda::kInvalidValue;
  const StreamObject *object = find_stream(stream);
  *flags = object != nullptr ? object->flags : 0;
  return check_stream(stream);
}
DRIVER_ALIAS(cuStreamGetFlags_ptsz, cuStreamGetFlags);
GPUMEM_EXPORT int cuStreamGetId(Stream stream, unsigned long long *id) {
  if (id == nullptr) return cuda::kInvalidValue;
  const StreamObject *object = find_stream(stream);
  *id = object != nullptr ? object->id + 2 : reinterpret_cast<uintptr_t>(stream);
  return check_stream(stream);
}
DRIVER_ALIAS(cuStreamGetId_ptsz, cuStreamGetId);
GPUMEM_EXPORT int cuStreamGetCtx(Stream stream, void **context) {
  if (context == nullptr) return cuda::kInvalidValue;
  const Error error = check_stream(stream);
  if (error != cuda::kSuccess) return error;
  const StreamObject *object = find_stream(stream);
  *context = primary_context(object != nullptr ? object->device : thread_state.device);
  return cuda::kSuccess;
}
DRIVER_ALIAS(cuStreamGetCtx_ptsz, cuStreamGetCtx);
GPUMEM_EXPORT int cuStreamAddCallback(Stream stream, void (*function)(Stream, int, void *), void *data, unsigned) {
  if (function == nullptr) return cuda::kInvalidValue;
  const Error error = check_stream(stream);
  if (error != cuda::kSuccess) return error;
  queue_work(stream);
  function(stream, cuda::kSuccess, data);
  return cuda::kSuccess;
}
DRIVER_ALIAS(cuStreamAddCallback_ptsz, cuStreamAddCallback);
GPUMEM_EXPORT int cuLaunchHostFunc(Stream stream, void (*function)(void *), void *data) {
  if (function == nullptr) return cuda::kInvalidValue;
  const Error error = check_stream(stream);
  if (error != cuda::kSuccess) return error;
  queue_work(stream);
  if (!is_capturing(stream)) function(data);
  return cuda::kSuccess;
}
DRIVER_ALIAS(cuLaunchHostFunc_ptsz, cuLaunchHostFunc);

GPUMEM_EXPORT int cuEventCreate(void **event, unsigned flags) { return create_event(flags, event); }
GPUMEM_EXPORT int cuEventDestroy_v2(void *event) { return destroy_event(event); }
GPUMEM_EXPORT int cuEventRecord(void *event, Stream stream) { return record_event(event, stream); }
DRIVER_ALIAS(cuEventRecord_ptsz, cuEventRecord);
GPUMEM_EXPORT int cuEventRecordWithFlags(void *event, Stream stream, unsigned) { return record_event(event, stream); }
DRIVER_ALIAS(cuEventRecordWithFlags_ptsz, cuEventRecordWithFlags);
GPUMEM_EXPORT int cuEventQuery(void *event) {
  const Event *object = find<Event>(event, kEventObject);
  return object != nullptr ? query_event(object) : cuda::kInvalidHandle;
}
GPUMEM_EXPORT int cuEventSynchronize(void *event) {
  const Event *object = find<Event>(event, kEventObject);
  if (object == nullptr) return cuda::kInvalidHandle;
  synchronize_event(object);
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cuEventElapsedTime(float *milliseconds, void *start, void *end) { return elapsed_ms(milliseconds, start, end); }
DRIVER_ALIAS(cuEventElapsedTime_v2, cuEventElapsedTime);

GPUMEM_EXPORT int cuStreamBeginCapture_v2(Stream stream, int mode) {
  const Error error = check_stream(stream);
  return error != cuda::kSuccess ? error : begin_capture(stream, mode, nullptr);
}
DRIVER_ALIAS(cuStreamBeginCapture_v2_ptsz, cuStreamBeginCapture_v2);
GPUMEM_EXPORT int cuStreamEndCapture(Stream stream, void **graph) {
  Graph *made = nullptr;
  const Error error = end_capture(stream, &made);
  if (graph != nullptr) *graph = made;
  return error;
}
DRIVER_ALIAS(cuStreamEndCapture_ptsz, cuStreamEndCapture);
GPUMEM_EXPORT int cuStreamIsCapturing(Stream stream, int *status) {
  if (status == nullptr) return cuda::kInvalidValue;
  *status = capture_status(stream);
  return check_stream(stream);
}
DRIVER_ALIAS(cuStreamIsCapturing_ptsz, cuStreamIsCapturing);
GPUMEM_EXPORT int cuStreamGetCaptureInfo_v2(Stream stream, int *status, unsigned long long *id, void **graph, const void ***dependencies, size_t *count) {
  return capture_info(stream, status, id, graph, dependencies, nullptr, count);
}
DRIVER_ALIAS(cuStreamGetCaptureInfo_v2_ptsz, cuStreamGetCaptureInfo_v2);
GPUMEM_EXPORT int cuStreamGetCaptureInfo_v3(Stream stream, int *status, unsigned long long *id, void **graph, const void ***dependencies, const void **edges, size_t *count) {
  if (edges != nullptr) *edges = nullptr;
  return capture_info(stream, status, id, graph, dependencies, nullptr, count);
}
DRIVER_ALIAS(cuStreamGetCaptureInfo_v3_ptsz, cuStreamGetCaptureInfo_v3);
GPUMEM_EXPORT int cuThreadExchangeStreamCaptureMode(int *mode) {
  if (mode == nullptr) return cuda::kInvalidValue;
  const int old = thread_state.capture_mode;
  thread_state.capture_mode = *mode;
  *mode = old;
  return cuda::kSuccess;
}
// --- Launches ---

static int launch(const void *function, Stream stream) {
  const Error error = check_stream(stream);
  if (error != cuda::kSuccess) return error;
  if (function == nullptr) return cuda::kInvalidValue;
  count_launch(stream);
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cuLaunchKernel(void *function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream stream, void **, void **) {
  return launch(function, stream);
}
DRIVER_ALIAS(cuLaunchKernel_ptsz, cuLaunchKernel);
GPUMEM_EXPORT int cuLaunchCooperativeKernel(void *function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream stream, void **) {
  return launch(function, stream);
}
DRIVER_ALIAS(cuLaunchCooperativeKernel_ptsz, cuLaunchCooperativeKernel);
GPUMEM_EXPORT int cuLaunchKernelEx(const cuda::DriverLaunchConfiguration *configuration, void *function, void **, void **) {
  return configuration == nullptr ? cuda::kInvalidValue : launch(function, configuration->hStream);
}
DRIVER_ALIAS(cuLaunchKernelEx_ptsz, cuLaunchKernelEx);
