// SPDX-License-Identifier: Apache-2.0
// CUDA runtime and driver: graphs built node by node, and what is asked and set of nodes (device/graphs.h). The two interfaces have the same
// functions with the same arguments, but for the word they begin with. Part of libgpumem_vgpu.so, preloaded into jobs.

#include "estimator/virtual_gpu/device/graph_nodes.h"
#include "estimator/virtual_gpu/runtime/runtime.h"

// cudaNAME and cuNAME.
#define BOTH(name, parameters, call)                                \
  GPUMEM_EXPORT int cuda##name parameters { return done(call); }    \
  GPUMEM_EXPORT int cu##name parameters { return call; }

namespace {

// Parameters that are not kept (graph_nodes.h): new ones change nothing.
Error accept_node(const void *node, const void *parameters) { return node != nullptr && parameters != nullptr ? cuda::kSuccess : cuda::kInvalidValue; }

Error add_event(void **node, void *graph, NodeType type, void *event) {
  return event == nullptr ? cuda::kInvalidValue : add_kept(node, graph, type, &event, kEventBytes);
}
Error set_event(void *node, NodeType type, void *event) {
  return event == nullptr ? cuda::kInvalidValue : set_kept(node, type, &event, kEventBytes);
}
cuda::Copy3D row(void *to, const void *from, size_t bytes, int kind) {
  cuda::Copy3D copy = {};
  copy.srcPtr = {const_cast<void *>(from), bytes, bytes, 1};
  copy.dstPtr = {to, bytes, bytes, 1};
  copy.extent = {bytes, 1, 1};
  copy.kind = kind;
  return copy;
}

// Edges are not kept: every node is a root.
Error no_edges(const void *of, size_t *count) {
  if (of == nullptr || count == nullptr) return cuda::kInvalidValue;
  *count = 0;
  return cuda::kSuccess;
}
Error no_edges_of(void *graph, size_t *count) {
  const Error error = check_graph(graph);
  return error != cuda::kSuccess ? error : no_edges(graph, count);
}

Error new_condition(unsigned long long *handle, void *graph) {
  static unsigned long long last;
  if (handle == nullptr) return cuda::kInvalidValue;
  const Error error = check_graph(graph);
  if (error == cuda::kSuccess) *handle = __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
  return error;
}

Error no_flags(const void *exec, unsigned long long *flags) {
  if (flags == nullptr) return cuda::kInvalidValue;
  *flags = 0;
  return check_exec(exec);
}

}  // namespace

// --- Adding: (node, graph, dependencies, how many, …) ---

BOTH(GraphAddEmptyNode, (void **node, void *graph, const void *, size_t), add_node(node, graph, kEmptyNode))
BOTH(GraphAddHostNode, (void **node, void *graph, const void *, size_t, const void *p), add_kept(node, graph, kHostNode, p, kHostBytes))
BOTH(GraphAddKernelNode, (void **node, void *graph, const void *, size_t), add_node(node, graph, kKernelNode))
GPUMEM_EXPORT int cudaGraphAddMemcpyNode(void **node, void *graph, const void *, size_t, const void *p) { return done(add_kept(node, graph, kCopyNode, p, kRuntimeCopyBytes)); }
GPUMEM_EXPORT int cuGraphAddMemcpyNode(void **node, void *graph, const void *, size_t, const void *p) { return add_kept(node, graph, kCopyNode, p, kDriverCopyBytes); }
BOTH(GraphAddMemsetNode, (void **node, void *graph, const void *, size_t, const void *p), add_kept(node, graph, kFillNode, p, kFillBytes))
BOTH(GraphAddEventRecordNode, (void **node, void *graph, const void *, size_t, void *event), add_event(node, graph, kRecordEventNode, event))
BOTH(GraphAddEventWaitNode, (void **node, void *graph, const void *, size_t, void *event), add_event(node, graph, kWaitEventNode, event))
BOTH(GraphAddExternalSemaphoresSignalNode, (void **node, void *graph, const void *, size_t, const SemaphoreNodeParameters *p), add_semaphores(node, graph, kSignalNode, p))
BOTH(GraphAddExternalSemaphoresWaitNode, (void **node, void *graph, const void *, size_t, const SemaphoreNodeParameters *p), add_semaphores(node, graph, kWaitNode, p))
BOTH(GraphAddChildGraphNode, (void **node, void *graph, const void *, size_t, void *child), add_child(node, graph, child))
BOTH(GraphAddMemAllocNode, (void **node, void *graph, const void *, size_t, cuda::MemoryNodeParameters *p), add_allocation(node, graph, p))
BOTH(GraphAddMemFreeNode, (void **node, void *graph, const void *, size_t, void *pointer), add_free(node, graph, pointer))
GPUMEM_EXPORT int cuGraphAddKernelNode_v2(void **node, void *graph, const void *, size_t) { return add_node(node, graph, kKernelNode); }
GPUMEM_EXPORT int cuGraphAddBatchMemOpNode(void **node, void *graph, const void *, size_t, const BatchNodeParameters *p) { return add_batch(node, graph, p); }
GPUMEM_EXPORT int cudaGraphAddMemcpyNode1D(void **node, void *graph, const void *, size_t, void *to, const void *from, size_t bytes, int kind) {
  const cuda::Copy3D copy = row(to, from, bytes, kind);
  return done(to == nullptr || from == nullptr ? cuda::kInvalidValue : add_kept(node, graph, kCopyNode, &copy, sizeof(copy)));
}
GPUMEM_EXPORT int cudaGraphAddMemcpyNodeToSymbol(void **node, void *graph, const void *, size_t) { return done(add_node(node, graph, kCopyNode)); }
GPUMEM_EXPORT int cudaGraphAddMemcpyNodeFromSymbol(void **node, void *graph, const void *, size_t) { return done(add_node(node, graph, kCopyNode)); }
// CUDA 12.2 has no edge data in this function, 12.3's _v2 and 13's have.
VERSIONED(cudaGraphAddNode, CUDA12) int cudaGraphAddNode_cuda12(void **node, void *graph, const void *, size_t, void *p) { return done(add_any(node, graph, p, kRuntimeCopyBytes)); }
VERSIONED(cudaGraphAddNode, CUDA13) int cudaGraphAddNode_cuda13(void **node, void *graph, const void *, const void *, size_t, void *p) { return done(add_any(node, graph, p, kRuntimeCopyBytes)); }
GPUMEM_EXPORT int cudaGraphAddNode_v2(void **node, void *graph, const void *, const void *, size_t, void *p) { return done(add_any(node, graph, p, kRuntimeCopyBytes)); }
GPUMEM_EXPORT int cuGraphAddNode(void **node, void *graph, const void *, size_t, void *p) { return add_any(node, graph, p, kDriverCopyBytes); }
GPUMEM_EXPORT int cuGraphAddNode_v2(void **node, void *graph, const void *, const void *, size_t, void *p) { return add_any(node, graph, p, kDriverCopyBytes); }
GPUMEM_EXPORT int cudaGraphConditionalHandleCreate(unsigned long long *handle, void *graph) { return done(new_condition(handle, graph)); }
GPUMEM_EXPORT int cudaGraphConditionalHandleCreate_v2(unsigned long long *handle, void *graph) { return done(new_condition(handle, graph)); }
GPUMEM_EXPORT int cuGraphConditionalHandleCreate(unsigned long long *handle, void *graph) { return new_condition(handle, graph); }

// --- Edges ---

BOTH(GraphAddDependencies, (void *graph), check_graph(graph))
BOTH(GraphAddDependencies_v2, (void *graph), check_graph(graph))
BOTH(GraphRemoveDependencies, (void *graph), check_graph(graph))
BOTH(GraphRemoveDependencies_v2, (void *graph), check_graph(graph))
VERSIONED(cudaGraphGetEdges, CUDA11) int cudaGraphGetEdges_cuda11(void *graph, void **, void **, size_t *count) { return done(no_edges_of(graph, count)); }
VERSIONED(cudaGraphGetEdges, CUDA12) int cudaGraphGetEdges_cuda12(void *graph, void **, void **, size_t *count) { return done(no_edges_of(graph, count)); }
VERSIONED(cudaGraphGetEdges, CUDA13) int cudaGraphGetEdges_cuda13(void *graph, void **, void **, void *, size_t *count) { return done(no_edges_of(graph, count)); }
GPUMEM_EXPORT int cuGraphGetEdges(void *graph, void **, void **, size_t *count) { return no_edges_of(graph, count); }
BOTH(GraphGetEdges_v2, (void *graph, void **, void **, void *, size_t *count), no_edges_of(graph, count))
#define NEIGHBOURS(name)                                                                                                                      \
  VERSIONED(cuda##name, CUDA11) int cuda##name##_cuda11(void *node, void **, size_t *count) { return done(no_edges(node, count)); }           \
  VERSIONED(cuda##name, CUDA12) int cuda##name##_cuda12(void *node, void **, size_t *count) { return done(no_edges(node, count)); }           \
  VERSIONED(cuda##name, CUDA13) int cuda##name##_cuda13(void *node, void **, void *, size_t *count) { return done(no_edges(node, count)); }   \
  GPUMEM_EXPORT int cu##name(void *node, void **, size_t *count) { return no_edges(node, count); }                                            \
  BOTH(name##_v2, (void *node, void **, void *, size_t *count), no_edges(node, count))
NEIGHBOURS(GraphNodeGetDependencies)
NEIGHBOURS(GraphNodeGetDependentNodes)
#undef NEIGHBOURS

// --- Nodes ---

BOTH(GraphGetNodes, (void *graph, void **nodes, size_t *count), graph_nodes(graph, nodes, count))
BOTH(GraphGetRootNodes, (void *graph, void **nodes, size_t *count), graph_nodes(graph, nodes, count))
BOTH(GraphNodeGetType, (const void *node, int *type), node_type(node, type))
BOTH(GraphNodeGetEnabled, (void *, const void *node, unsigned *enabled), node_enabled(node, enabled))
BOTH(GraphNodeSetEnabled, (void *, void *node, unsigned enabled), enable_node(node, enabled))
BOTH(GraphDestroyNode, (void *node), destroy_node(node))
BOTH(GraphChildGraphNodeGetGraph, (const void *node, void **graph), node_child(node, graph))
BOTH(GraphMemAllocNodeGetParams, (const void *node, cuda::MemoryNodeParameters *parameters), node_allocation(node, parameters))
BOTH(GraphMemFreeNodeGetParams, (const void *node, void *pointer), node_freed(node, pointer))
BOTH(GraphKernelNodeCopyAttributes, (const void *to, const void *from), accept_node(to, from))
BOTH(GraphKernelNodeSetAttribute, (const void *node, int, const void *value), accept_node(node, value))

// --- New parameters: of a node (node, …) and of a node of an instance (exec, node, …) ---

BOTH(GraphKernelNodeSetParams, (const void *node, const void *parameters), accept_node(node, parameters))
GPUMEM_EXPORT int cudaGraphMemcpyNodeSetParams(void *node, const void *p) { return done(set_kept(node, kCopyNode, p, kRuntimeCopyBytes)); }
GPUMEM_EXPORT int cuGraphMemcpyNodeSetParams(void *node, const void *p) { return set_kept(node, kCopyNode, p, kDriverCopyBytes); }
BOTH(GraphMemsetNodeSetParams, (void *node, const void *p), set_kept(node, kFillNode, p, kFillBytes))
BOTH(GraphHostNodeSetParams, (void *node, const void *p), set_kept(node, kHostNode, p, kHostBytes))
BOTH(GraphEventRecordNodeSetEvent, (void *node, void *event), set_event(node, kRecordEventNode, event))
BOTH(GraphEventWaitNodeSetEvent, (void *node, void *event), set_event(node, kWaitEventNode, event))
BOTH(GraphExternalSemaphoresSignalNodeSetParams, (void *node, const SemaphoreNodeParameters *p), set_semaphores(node, kSignalNode, p))
BOTH(GraphExternalSemaphoresWaitNodeSetParams, (void *node, const SemaphoreNodeParameters *p), set_semaphores(node, kWaitNode, p))
GPUMEM_EXPORT int cuGraphBatchMemOpNodeSetParams(void *node, const BatchNodeParameters *p) { return set_batch(node, p); }
BOTH(GraphNodeSetParams, (const void *node, const void *parameters), accept_node(node, parameters))
GPUMEM_EXPORT int cuGraphKernelNodeSetParams_v2(const void *node, const void *parameters) { return accept_node(node, parameters); }
GPUMEM_EXPORT int cudaGraphMemcpyNodeSetParams1D(void *node, void *to, const void *from, size_t bytes, int kind) {
  const cuda::Copy3D copy = row(to, from, bytes, kind);
  return done(to == nullptr || from == nullptr ? cuda::kInvalidValue : set_kept(node, kCopyNode, &copy, sizeof(copy)));
}
GPUMEM_EXPORT int cudaGraphMemcpyNodeSetParamsToSymbol(const void *node, const void *symbol) { return done(accept_node(node, symbol)); }
GPUMEM_EXPORT int cudaGraphMemcpyNodeSetParamsFromSymbol(const void *node, const void *to) { return done(accept_node(node, to)); }

BOTH(GraphExecKernelNodeSetParams, (void *exec, const void *), check_exec(exec))
BOTH(GraphExecMemcpyNodeSetParams, (void *exec, const void *), check_exec(exec))
BOTH(GraphExecMemsetNodeSetParams, (void *exec, const void *), check_exec(exec))
BOTH(GraphExecHostNodeSetParams, (void *exec, const void *), check_exec(exec))
BOTH(GraphExecChildGraphNodeSetParams, (void *exec, const void *), check_exec(exec))
BOTH(GraphExecEventRecordNodeSetEvent, (void *exec, const void *), check_exec(exec))
BOTH(GraphExecEventWaitNodeSetEvent, (void *exec, const void *), check_exec(exec))
BOTH(GraphExecNodeSetParams, (void *exec, const void *), check_exec(exec))
BOTH(GraphExecExternalSemaphoresSignalNodeSetParams, (void *exec, const void *, const SemaphoreNodeParameters *p), check_semaphores(exec, p))
BOTH(GraphExecExternalSemaphoresWaitNodeSetParams, (void *exec, const void *, const SemaphoreNodeParameters *p), check_semaphores(exec, p))
GPUMEM_EXPORT int cuGraphExecBatchMemOpNodeSetParams(void *exec, const void *, const BatchNodeParameters *p) { return check_batch(exec, p); }
BOTH(GraphExecGetFlags, (const void *exec, unsigned long long *flags), no_flags(exec, flags))
GPUMEM_EXPORT int cuGraphExecKernelNodeSetParams_v2(void *exec, const void *) { return check_exec(exec); }
GPUMEM_EXPORT int cudaGraphExecMemcpyNodeSetParams1D(void *exec, const void *) { return done(check_exec(exec)); }
GPUMEM_EXPORT int cudaGraphExecMemcpyNodeSetParamsToSymbol(void *exec, const void *) { return done(check_exec(exec)); }
GPUMEM_EXPORT int cudaGraphExecMemcpyNodeSetParamsFromSymbol(void *exec, const void *) { return done(check_exec(exec)); }

// --- What was kept of a node (graph_nodes.h), and names for tools ---

#define KEPT(name, type, bytes)                                                                                                      \
  GPUMEM_EXPORT int cuda##name(const void *node, void *out) { return done(kept_parameters(node, type, out, bytes, "cuda" #name)); } \
  GPUMEM_EXPORT int cu##name(const void *node, void *out) { return kept_parameters(node, type, out, bytes, "cu" #name); }
GPUMEM_EXPORT int cudaGraphMemcpyNodeGetParams(const void *node, void *out) { return done(kept_parameters(node, kCopyNode, out, kRuntimeCopyBytes, __func__)); }
GPUMEM_EXPORT int cuGraphMemcpyNodeGetParams(const void *node, void *out) { return kept_parameters(node, kCopyNode, out, kDriverCopyBytes, __func__); }
KEPT(GraphMemsetNodeGetParams, kFillNode, kFillBytes)
KEPT(GraphHostNodeGetParams, kHostNode, kHostBytes)
KEPT(GraphEventRecordNodeGetEvent, kRecordEventNode, kEventBytes)
KEPT(GraphEventWaitNodeGetEvent, kWaitEventNode, kEventBytes)
KEPT(GraphExternalSemaphoresSignalNodeGetParams, kSignalNode, sizeof(SemaphoreNodeParameters))
KEPT(GraphExternalSemaphoresWaitNodeGetParams, kWaitNode, sizeof(SemaphoreNodeParameters))
#undef KEPT
GPUMEM_EXPORT int cuGraphBatchMemOpNodeGetParams(const void *node, void *out) { return kept_parameters(node, kBatchNode, out, sizeof(BatchNodeParameters), __func__); }

BOTH(GraphGetId, (const void *graph, unsigned *id), graph_id(graph, id))
BOTH(GraphExecGetId, (const void *exec, unsigned *id), exec_id(exec, id))
BOTH(GraphNodeGetLocalId, (const void *node, unsigned *id), node_local_id(node, id))
BOTH(GraphNodeGetToolsId, (const void *node, unsigned long long *id), node_tools_id(node, id))
BOTH(GraphNodeGetContainingGraph, (const void *node, void **graph), node_graph(node, graph, "GraphNodeGetContainingGraph (of a captured node)"))
BOTH(GraphNodeFindInClone, (void **node, const void *original, const void *clone), node_in_clone(node, original, clone))

// --- Whole graphs ---

BOTH(GraphCreate, (void **graph, unsigned), create_graph(graph))
BOTH(GraphClone, (void **clone, void *graph), clone_graph(clone, graph))
BOTH(GraphDestroy, (void *graph), destroy_graph(graph))
BOTH(GraphDebugDotPrint, (void *graph, const char *path, unsigned), print_graph(graph, path))
BOTH(GraphUpload, (void *exec, Stream stream), upload_exec(exec, stream))
BOTH(GraphLaunch, (void *exec, Stream stream), launch_exec(exec, stream))
BOTH(GraphExecDestroy, (void *exec), destroy_exec(exec))
// First versions and CUDA 11: (exec, graph, error node, log, size); later (exec, graph, flags).
BOTH(GraphInstantiate, (void **exec, void *graph), instantiate_graph(exec, graph))
BOTH(GraphInstantiateWithFlags, (void **exec, void *graph, unsigned long long), instantiate_graph(exec, graph))
GPUMEM_EXPORT int cuGraphInstantiate_v2(void **exec, void *graph) { return instantiate_graph(exec, graph); }
static Error instantiate(void **exec, void *graph, cuda::GraphInstantiateParameters *parameters) {
  if (parameters == nullptr) return cuda::kInvalidValue;
  parameters->errNode_out = nullptr;
  parameters->result_out = 0;
  return instantiate_graph(exec, graph);
}
BOTH(GraphInstantiateWithParams, (void **exec, void *graph, cuda::GraphInstantiateParameters *p), instantiate(exec, graph, p))

static Error update_11(void *exec, void *graph, void **error_node, int *result) {
  if (error_node == nullptr || result == nullptr) return cuda::kInvalidValue;
  *error_node = nullptr;
  *result = 0;
  return update_exec(exec, graph);
}
static Error update_12(void *exec, void *graph, cuda::GraphUpdateResult *result) {
  if (result == nullptr) return cuda::kInvalidValue;
  *result = {};
  return update_exec(exec, graph);
}
VERSIONED(cudaGraphExecUpdate, CUDA11) int cudaGraphExecUpdate_cuda11(void *exec, void *graph, void **error_node, int *result) { return done(update_11(exec, graph, error_node, result)); }
VERSIONED(cudaGraphExecUpdate, CUDA12) int cudaGraphExecUpdate_cuda12(void *exec, void *graph, cuda::GraphUpdateResult *result) { return done(update_12(exec, graph, result)); }
VERSIONED(cudaGraphExecUpdate, CUDA13) int cudaGraphExecUpdate_cuda13(void *exec, void *graph, cuda::GraphUpdateResult *result) { return done(update_12(exec, graph, result)); }
GPUMEM_EXPORT int cuGraphExecUpdate(void *exec, void *graph, void **error_node, int *result) { return update_11(exec, graph, error_node, result); }
GPUMEM_EXPORT int cuGraphExecUpdate_v2(void *exec, void *graph, cuda::GraphUpdateResult *result) { return update_12(exec, graph, result); }

// --- Memory that graphs own ---

BOTH(DeviceGetGraphMemAttribute, (int device, int attribute, void *value), graph_memory(device, attribute, value))
BOTH(DeviceSetGraphMemAttribute, (int device, int attribute, void *value), reset_graph_memory(device, attribute, value))
static Error trim(int device) { return device < 0 || device >= visible_device_count() ? cuda::kInvalidDevice : check_ready(); }
BOTH(DeviceGraphMemTrim, (int device), trim(device))
