// SPDX-License-Identifier: Apache-2.0
// CUDA runtime: stream capture and graphs, captured and replayed as nothing. Part of libgpumem_vgpu.so, preloaded into jobs.

#include <stdio.h>

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

GPUMEM_EXPORT int cudaGraphCreate(void **graph, unsigned) {
  if (graph == nullptr) return done(cuda::kInvalidValue);
  const Error error = check_current();
  if (error != cuda::kSuccess) return done(error);
  *graph = new_graph();
  return *graph != nullptr ? cuda::kSuccess : done(cuda::kOperatingSystem);
}

GPUMEM_EXPORT int cudaGraphClone(void **clone, void *graph) {
  if (clone == nullptr) return done(cuda::kInvalidValue);
  const Graph *source = find<Graph>(graph, kGraphObject);
  if (source == nullptr) return done(cuda::kInvalidValue);
  Graph *made = new_graph();
  if (made == nullptr) return done(cuda::kOperatingSystem);
  made->nodes = source->nodes;
  *clone = made;
  return cuda::kSuccess;
}

GPUMEM_EXPORT int cudaGraphDestroy(void *graph) {
  Graph *object = find<Graph>(graph, kGraphObject);
  if (object == nullptr) return done(cuda::kInvalidValue);
  delete_object(object);
  return cuda::kSuccess;
}

static int instantiate(void **exec, void *graph) {
  const Graph *source = find<Graph>(graph, kGraphObject);
  if (source == nullptr || exec == nullptr) return done(cuda::kInvalidValue);
  GraphExec *made = make<GraphExec>(kGraphExecObject);
  if (made == nullptr) return done(cuda::kOperatingSystem);
  made->nodes = source->nodes;
  *exec = made;
  return cuda::kSuccess;
}
// CUDA 11: (exec, graph, error node, log, size); 12 and 13: (exec, graph, flags).
GPUMEM_EXPORT int cudaGraphInstantiate(void **exec, void *graph) { return instantiate(exec, graph); }
GPUMEM_EXPORT int cudaGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long) { return instantiate(exec, graph); }
GPUMEM_EXPORT int cudaGraphInstantiateWithParams(void **exec, void *graph, cuda::GraphInstantiateParameters *parameters) {
  if (parameters == nullptr) return done(cuda::kInvalidValue);
  parameters->errNode_out = nullptr;
  parameters->result_out = 0;
  return instantiate(exec, graph);
}
GPUMEM_EXPORT int cudaGraphUpload(void *exec, Stream stream) {
  if (find<GraphExec>(exec, kGraphExecObject) == nullptr) return done(cuda::kInvalidValue);
  return done(check_stream(stream));
}
GPUMEM_EXPORT int cudaGraphLaunch(void *exec, Stream stream) {
  const Error error = check_stream(stream);
  if (error != cuda::kSuccess) return done(error);
  GraphExec *object = find<GraphExec>(exec, kGraphExecObject);
  return done(object == nullptr ? cuda::kInvalidValue : launch_graph(object, stream));
}
GPUMEM_EXPORT int cudaGraphExecDestroy(void *exec) {
  GraphExec *object = find<GraphExec>(exec, kGraphExecObject);
  if (object == nullptr) return done(cuda::kInvalidValue);
  delete_object(object);
  return cuda::kSuccess;
}

static Error update_exec(void *exec, void *graph) {
  GraphExec *object = find<GraphExec>(exec, kGraphExecObject);
  const Graph *source = find<Graph>(graph, kGraphObject);
  if (object == nullptr || source == nullptr) return cuda::kInvalidValue;
  object->nodes = source->nodes;
  return cuda::kSuccess;
}
VERSIONED(cudaGraphExecUpdate, CUDA11) int cudaGraphExecUpdate_cuda11(void *exec, void *graph, void **error_node, int *result) {
  if (error_node == nullptr || result == nullptr) return done(cuda::kInvalidValue);
  *error_node = nullptr;
  *result = 0;
  return done(update_exec(exec, graph));
}
static int exec_update_12(void *exec, void *graph, cuda::GraphUpdateResult *result) {
  if (result == nullptr) return done(cuda::kInvalidValue);
  *result = {};
  return done(update_exec(exec, graph));
}
VERSIONED(cudaGraphExecUpdate, CUDA12) int cudaGraphExecUpdate_cuda12(void *exec, void *graph, cuda::GraphUpdateResult *result) {
  return exec_update_12(exec, graph, result);
}
VERSIONED(cudaGraphExecUpdate, CUDA13) int cudaGraphExecUpdate_cuda13(void *exec, void *graph, cuda::GraphUpdateResult *result) {
  return exec_update_12(exec, graph, result);
}

GPUMEM_EXPORT int cudaGraphNodeGetType(void *, int *type) {
  if (type == nullptr) return done(cuda::kInvalidValue);
  *type = 0;  // cudaGraphNodeTypeKernel
  return cuda::kSuccess;
}
VERSIONED(cudaGraphNodeGetDependencies, CUDA11) int cudaGraphNodeGetDependencies_cuda11(void *, void **, size_t *count) {
  if (count == nullptr) return done(cuda::kInvalidValue);
  *count = 0;
  return cuda::kSuccess;
}
VERSIONED(cudaGraphNodeGetDependencies, CUDA12) int cudaGraphNodeGetDependencies_cuda12(void *, void **, size_t *count) {
  if (count == nullptr) return done(cuda::kInvalidValue);
  *count = 0;
  return cuda::kSuccess;
}
VERSIONED(cudaGraphNodeGetDependencies, CUDA13) int cudaGraphNodeGetDependencies_cuda13(void *, void **, void *, size_t *count) {
  if (count == nullptr) return done(cuda::kInvalidValue);
  *count = 0;
  return cuda::kSuccess;
}

GPUMEM_EXPORT int cudaGraphDebugDotPrint(void *graph, const char *path, unsigned) {
  const Graph *object = find<Graph>(graph, kGraphObject);
  if (object == nullptr || path == nullptr) return done(cuda::kInvalidValue);
  FILE *file = fopen(path, "we");
  if (file == nullptr) return done(cuda::kOperatingSystem);
  fprintf(file, "digraph dot {\n  label=\"virtual GPU: %u nodes, not recorded one by one\"\n}\n", object->nodes);
  fclose(file);
  return cuda::kSuccess;
}

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
