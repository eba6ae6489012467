// SPDX-License-Identifier: Apache-2.0
// CUDA runtime: streams, events, host functions. Part of libgpumem_vgpu.so, preloaded into jobs.

#include "estimator/virtual_gpu/device/ipc.h"
#include "estimator/virtual_gpu/device/objects.h"
#include "estimator/virtual_gpu/device/pools.h"
#include "estimator/virtual_gpu/runtime/runtime.h"

GPUMEM_EXPORT int cudaStreamCreate(Stream *stream) { return done(create_stream(0, 0, stream)); }
GPUMEM_EXPORT int cudaStreamCreateWithFlags(Stream *stream, unsigned flags) { return done(create_stream(flags, 0, stream)); }
GPUMEM_EXPORT int cudaStreamCreateWithPriority(Stream *stream, unsigned flags, int priority) {
  return done(create_stream(flags, priority, stream));
}
GPUMEM_EXPORT int cudaStreamDestroy(Stream stream) { return done(destroy_stream(stream)); }

GPUMEM_EXPORT int cudaStreamQuery(Stream stream) {
  const Error error = check_stream(stream);
  if (error != cuda::kSuccess) return done(error);
  if (is_capturing(stream)) return done(spoil_capture(stream));
  return done(query_stream(stream));
}
GPUMEM_EXPORT int cudaStreamSynchronize(Stream stream) {
  const Error error = check_stream(stream);
  if (error != cuda::kSuccess) return done(error);
  if (is_capturing(stream)) return done(spoil_capture(stream));
  synchronize_stream(stream);
  trim_all_pools();
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cudaStreamWaitEvent(Stream stream, void *event, unsigned) { return done(wait_event(stream, event)); }

// `of`: what a stream's object says; nullptr for the default streams.
template <class T, class Of>
static int ask(Stream stream, T *answer, const Of &of) {
  if (answer == nullptr) return done(cuda::kInvalidValue);
  const Error error = check_stream(stream);
  if (error == cuda::kSuccess) *answer = static_cast<T>(of(find_stream(stream)));
  return done(error);
}
GPUMEM_EXPORT int cudaStreamGetPriority(Stream stream, int *priority) {
  return ask(stream, priority, [](const StreamObject *object) { return object != nullptr ? object->priority : 0; });
}
GPUMEM_EXPORT int cudaStreamGetFlags(Stream stream, unsigned *flags) {
  return ask(stream, flags, [](const StreamObject *object) { return object != nullptr ? object->flags : 0; });
}
GPUMEM_EXPORT int cudaStreamGetId(Stream stream, unsigned long long *id) {
  return ask(stream, id, [=](const StreamObject *object) { return object != nullptr ? object->id + 2 : reinterpret_cast<uintptr_t>(stream); });
}
GPUMEM_EXPORT int cudaStreamGetDevice(Stream stream, int *device) {
  return ask(stream, device, [](const StreamObject *object) { return object != nullptr ? object->device : thread_state.device; });
}
GPUMEM_EXPORT int cudaStreamAttachMemAsync(Stream stream, void *pointer, size_t, unsigned) {
  const Error error = check_stream(stream);
  if (error != cuda::kSuccess) return done(error);
  return done(find_range(pointer).kind == RangeKind::managed ? cuda::kSuccess : cuda::kInvalidValue);
}
GPUMEM_EXPORT int cudaStreamSetAttribute(Stream stream, int, const void *value) { return done(value == nullptr ? cuda::kInvalidValue : check_stream(stream)); }
GPUMEM_EXPORT int cudaStreamCopyAttributes(Stream to, Stream) { return done(check_stream(to)); }

// Queued work is complete by now, so a host function runs at once, in the calling thread, as CUDA may.
GPUMEM_EXPORT int cudaLaunchHostFunc(Stream stream, void (*function)(void *), void *data) {
  const Error error = check_stream(stream);
  if (error != cuda::kSuccess) return done(error);
  if (function == nullptr) return done(cuda::kInvalidValue);
  queue_work(stream);
  if (!is_capturing(stream)) function(data);
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cudaStreamAddCallback(Stream stream, void (*function)(Stream, int, void *), void *data, unsigned) {
  const Error error = check_stream(stream);
  if (error != cuda::kSuccess) return done(error);
  if (function == nullptr) return done(cuda::kInvalidValue);
  if (is_capturing(stream)) return done(cuda::kStreamCaptureUnsupported);
  queue_work(stream);
  function(stream, cuda::kSuccess, data);
  return cuda::kSuccess;
}

GPUMEM_EXPORT int cudaEventCreate(void **event) { return done(create_event(0, event)); }
GPUMEM_EXPORT int cudaEventCreateWithFlags(void **event, unsigned flags) { return done(create_event(flags, event)); }
GPUMEM_EXPORT int cudaEventDestroy(void *event) { return done(destroy_event(event)); }
GPUMEM_EXPORT int cudaEventRecord(void *event, Stream stream) { return done(record_event(event, stream)); }
GPUMEM_EXPORT int cudaEventRecordWithFlags(void *event, Stream stream, unsigned) { return done(record_event(event, stream)); }

static int check_event(const void *event) {
  const Error error = check_ready();
  if (error != cuda::kSuccess) return done(error);
  return done(find<Event>(event, kEventObject) != nullptr ? cuda::kSuccess : cuda::kInvalidHandle);
}
GPUMEM_EXPORT int cudaEventQuery(void *event) {
  const int error = check_event(event);
  return error != cuda::kSuccess ? error : done(query_event(static_cast<Event *>(event)));
}
GPUMEM_EXPORT int cudaEventSynchronize(void *event) {
  const int error = check_event(event);
  if (error != cuda::kSuccess) return error;
  synchronize_event(static_cast<Event *>(event));
  trim_all_pools();
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cudaEventElapsedTime(float *milliseconds, void *start, void *end) {
  return done(elapsed_ms(milliseconds, start, end));
}
GPUMEM_EXPORT int cudaEventElapsedTime_v2(float *milliseconds, void *start, void *end) {
  return done(elapsed_ms(milliseconds, start, end));
}
GPUMEM_EXPORT int cudaIpcGetEventHandle(cuda::IpcHandle *handle, void *event) { return done(export_event(handle, event)); }
GPUMEM_EXPORT int cudaIpcOpenEventHandle(void **event, cuda::IpcHandle handle) {
  const Error error = check_current();
  return done(error != cuda::kSuccess ? error : import_event(handle, event));
}
