// SPDX-License-Identifier: Apache-2.0
// CUDA runtime: capture of streams into graphs, and objects whose life graphs share (both interfaces). Graphs: graph_nodes.cpp. Part of libgpumem_vgpu.so, preloaded into jobs.

#include "estimator/virtual_gpu/device/objects.h"
#include "estimator/virtual_gpu/runtime/runtime.h"

GPUMEM_EXPORT int cudaStreamBeginCapture(Stream stream, int mode) {
  const Error error = check_stream(stream);
  return done(error != cuda::kSuccess ? error : begin_capture(stream, mode, nullptr));
}
GPUMEM_EXPORT int cudaStreamBeginCaptureToGraph(Stream stream, void *graph, const void *, const void *, size_t, int mode) {
  const Error error = check_stream(stream);
  Graph *into = find<Graph>(graph, kGraphObject);
  if (error == cuda::kSuccess && into == nullptr) return done(cuda::kInvalidValue);
  return done(error != cuda::kSuccess ? error : begin_capture(stream, mode, into));
}
GPUMEM_EXPORT int cudaStreamEndCapture(Stream stream, void **graph) {
  Graph *made = nullptr;
  const Error error = end_capture(stream, &made);
  if (graph != nullptr) *graph = made;
  return done(error);
}

GPUMEM_EXPORT int cudaStreamIsCapturing(Stream stream, int *status) {
  if (status == nullptr) return done(cuda::kInvalidValue);
  const Error error = check_stream(stream);
  if (error != cuda::kSuccess) return done(error);
  *status = capture_status(stream);
  return cuda::kSuccess;
}

GPUMEM_EXPORT int cudaThreadExchangeStreamCaptureMode(int *mode) {
  if (mode == nullptr || *mode < 0 || *mode > 2) return done(cuda::kInvalidValue);
  const int old = thread_state.capture_mode;
  thread_state.capture_mode = *mode;
  *mode = old;
  return cuda::kSuccess;
}
VERSIONED(cudaStreamGetCaptureInfo, CUDA11) int cudaStreamGetCaptureInfo_cuda11(Stream stream, int *status, unsigned long long *id) {
  return done(capture_info(stream, status, id, nullptr, nullptr, nullptr, nullptr));
}
VERSIONED(cudaStreamGetCaptureInfo, CUDA12) int cudaStreamGetCaptureInfo_cuda12(Stream stream, int *status, unsigned long long *id) {
  return done(capture_info(stream, status, id, nullptr, nullptr, nullptr, nullptr));
}
VERSIONED(cudaStreamGetCaptureInfo, CUDA13)
int cudaStreamGetCaptureInfo_cuda13(Stream stream, int *status, unsigned long long *id, void **graph, const void ***dependencies,
                    const void **edges, size_t *count) {
  return done(capture_info(stream, status, id, graph, dependencies, edges, count));
}
GPUMEM_EXPORT int cudaStreamGetCaptureInfo_v2(Stream stream, int *status, unsigned long long *id, void **graph,
                                              const void ***dependencies, size_t *count) {
  return done(capture_info(stream, status, id, graph, dependencies, nullptr, count));
}
GPUMEM_EXPORT int cudaStreamGetCaptureInfo_v3(Stream stream, int *status, unsigned long long *id, void **graph,
                                              const void ***dependencies, const void **edges, size_t *count) {
  return done(capture_info(stream, status, id, graph, dependencies, edges, count));
}
// Signatures differ by generation only in arguments that are not looked at.
static int update_dependencies(Stream stream) {
  const Error error = check_stream(stream);
  if (error != cuda::kSuccess) return done(error);
  return done(is_capturing(stream) ? cuda::kSuccess : static_cast<Error>(401));  // cudaErrorIllegalState
}
GPUMEM_EXPORT int cudaStreamUpdateCaptureDependencies(Stream stream) { return update_dependencies(stream); }
GPUMEM_EXPORT int cudaStreamUpdateCaptureDependencies_v2(Stream stream) { return update_dependencies(stream); }

// User objects exist only to call a destructor when their last reference goes.
struct UserObject {
  uint32_t kind;
  uint32_t references;
  void (*destroy)(void *);
  void *data;
};
GPUMEM_EXPORT int cudaUserObjectCreate(void **object, void *data, void (*destroy)(void *), unsigned references, unsigned) {
  if (object == nullptr || destroy == nullptr) return done(cuda::kInvalidValue);
  UserObject *made = make<UserObject>(kUserObject);
  if (made == nullptr) return done(cuda::kOperatingSystem);
  made->references = references;
  made->destroy = destroy;
  made->data = data;
  *object = made;
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cudaUserObjectRetain(void *handle, unsigned count) {
  UserObject *object = find<UserObject>(handle, kUserObject);
  if (object == nullptr) return done(cuda::kInvalidValue);
  __atomic_add_fetch(&object->references, count, __ATOMIC_RELAXED);
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cudaUserObjectRelease(void *handle, unsigned count) {
  UserObject *object = find<UserObject>(handle, kUserObject);
  if (object == nullptr) return done(cuda::kInvalidValue);
  if (__atomic_sub_fetch(&object->references, count, __ATOMIC_RELAXED) != 0) return cuda::kSuccess;
  void (*destroy)(void *) = object->destroy;
  void *data = object->data;
  delete_object(object);
  destroy(data);
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cudaGraphRetainUserObject(void *graph, void *object, unsigned count, unsigned flags) {
  if (find<Graph>(graph, kGraphObject) == nullptr) return done(cuda::kInvalidValue);
  return flags & 1 ? static_cast<int>(cuda::kSuccess) : cudaUserObjectRetain(object, count);  // 1: the reference moves
}
GPUMEM_EXPORT int cudaGraphReleaseUserObject(void *graph, void *object, unsigned count) {
  if (find<Graph>(graph, kGraphObject) == nullptr) return done(cuda::kInvalidValue);
  return cudaUserObjectRelease(object, count);
}
