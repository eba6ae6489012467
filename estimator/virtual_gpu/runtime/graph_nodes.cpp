// SPDX-License-Identifier: Apache-2.0
// CUDA runtime and driver: graphs built node by node. A node is counted, its parameters are not kept: what would need them (reading
// them back, memory that a graph owns, conditions) is missing. Part of libgpumem_vgpu.so, preloaded into jobs.

#include "estimator/virtual_gpu/device/objects.h"
#include "estimator/virtual_gpu/runtime/runtime.h"

namespace {

Error add(void **node, void *graph, uint32_t nodes = 1) {
  Graph *object = find<Graph>(graph, kGraphObject);
  if (node == nullptr || object == nullptr) return cuda::kInvalidValue;
  *node = graph_node(object, object->nodes);
  object->nodes += nodes;
  return cuda::kSuccess;
}

Error exists(const void *exec) { return find<GraphExec>(exec, kGraphExecObject) != nullptr ? cuda::kSuccess : cuda::kInvalidValue; }

// Edges are not kept: every node is a root.
Error no_edges(void *graph, size_t *count) {
  if (find<Graph>(graph, kGraphObject) == nullptr || count == nullptr) return cuda::kInvalidValue;
  *count = 0;
  return cuda::kSuccess;
}

}  // namespace

// All begin with (node, graph, dependencies, how many); what follows is not looked at.
#define ADD(runtime_name, driver_name)                                                                            \
  GPUMEM_EXPORT int runtime_name(void **node, void *graph, const void *, size_t) { return done(add(node, graph)); } \
  GPUMEM_EXPORT int driver_name(void **node, void *graph, const void *, size_t) { return add(node, graph); }
ADD(cudaGraphAddEmptyNode, cuGraphAddEmptyNode)
ADD(cudaGraphAddHostNode, cuGraphAddHostNode)
ADD(cudaGraphAddKernelNode, cuGraphAddKernelNode_v2)
ADD(cudaGraphAddMemcpyNode, cuGraphAddMemcpyNode)
ADD(cudaGraphAddMemsetNode, cuGraphAddMemsetNode)
ADD(cudaGraphAddEventRecordNode, cuGraphAddEventRecordNode)
ADD(cudaGraphAddEventWaitNode, cuGraphAddEventWaitNode)
#undef ADD
GPUMEM_EXPORT int cuGraphAddKernelNode(void **node, void *graph, const void *, size_t) { return add(node, graph); }
GPUMEM_EXPORT int cudaGraphAddMemcpyNode1D(void **node, void *graph, const void *, size_t) { return done(add(node, graph)); }

GPUMEM_EXPORT int cudaGraphAddChildGraphNode(void **node, void *graph, const void *, size_t, void *child) {
  const Graph *object = find<Graph>(child, kGraphObject);
  return done(object == nullptr ? cuda::kInvalidValue : add(node, graph, object->nodes > 0 ? object->nodes : 1));
}
GPUMEM_EXPORT int cuGraphAddChildGraphNode(void **node, void *graph, const void *, size_t, void *child) {
  const Graph *object = find<Graph>(child, kGraphObject);
  return object == nullptr ? cuda::kInvalidValue : add(node, graph, object->nodes > 0 ? object->nodes : 1);
}

// New parameters for a node of an instance: (exec, node, …).
#define SET(name) GPUMEM_EXPORT int name(void *exec, const void *)
SET(cudaGraphExecKernelNodeSetParams) { return done(exists(exec)); }
SET(cudaGraphExecMemcpyNodeSetParams) { return done(exists(exec)); }
SET(cudaGraphExecMemcpyNodeSetParams1D) { return done(exists(exec)); }
SET(cudaGraphExecMemsetNodeSetParams) { return done(exists(exec)); }
SET(cudaGraphExecHostNodeSetParams) { return done(exists(exec)); }
SET(cudaGraphExecChildGraphNodeSetParams) { return done(exists(exec)); }
SET(cudaGraphExecEventRecordNodeSetEvent) { return done(exists(exec)); }
SET(cudaGraphExecEventWaitNodeSetEvent) { return done(exists(exec)); }
SET(cuGraphExecKernelNodeSetParams_v2) { return exists(exec); }
SET(cuGraphExecMemcpyNodeSetParams) { return exists(exec); }
SET(cuGraphExecMemsetNodeSetParams) { return exists(exec); }
SET(cuGraphExecHostNodeSetParams) { return exists(exec); }
#undef SET

GPUMEM_EXPORT int cudaGraphAddDependencies(void *graph) { return done(find<Graph>(graph, kGraphObject) != nullptr ? cuda::kSuccess : cuda::kInvalidValue); }
GPUMEM_EXPORT int cudaGraphAddDependencies_v2(void *graph) { return cudaGraphAddDependencies(graph); }
GPUMEM_EXPORT int cuGraphAddDependencies(void *graph) { return find<Graph>(graph, kGraphObject) != nullptr ? cuda::kSuccess : cuda::kInvalidValue; }
GPUMEM_EXPORT int cuGraphAddDependencies_v2(void *graph) { return cuGraphAddDependencies(graph); }
VERSIONED(cudaGraphGetEdges, CUDA11) int cudaGraphGetEdges_cuda11(void *graph, void **, void **, size_t *count) { return done(no_edges(graph, count)); }
VERSIONED(cudaGraphGetEdges, CUDA12) int cudaGraphGetEdges_cuda12(void *graph, void **, void **, size_t *count) { return done(no_edges(graph, count)); }
VERSIONED(cudaGraphGetEdges, CUDA13) int cudaGraphGetEdges_cuda13(void *graph, void **, void **, void *, size_t *count) { return done(no_edges(graph, count)); }
GPUMEM_EXPORT int cudaGraphGetEdges_v2(void *graph, void **, void **, void *, size_t *count) { return done(no_edges(graph, count)); }
GPUMEM_EXPORT int cuGraphGetEdges(void *graph, void **, void **, size_t *count) { return no_edges(graph, count); }
GPUMEM_EXPORT int cuGraphGetEdges_v2(void *graph, void **, void **, void *, size_t *count) { return no_edges(graph, count); }

GPUMEM_EXPORT int cuGraphCreate(void **graph, unsigned) {
  const Error error = check_current();
  if (error != cuda::kSuccess) return error;
  if (graph == nullptr) return cuda::kInvalidValue;
  *graph = new_graph();
  return *graph != nullptr ? cuda::kSuccess : cuda::kOperatingSystem;
}
static int count_nodes(void *graph, void **nodes, size_t *count) {
  const Graph *object = find<Graph>(graph, kGraphObject);
  if (object == nullptr || count == nullptr) return cuda::kInvalidValue;
  if (nodes != nullptr)
    for (size_t n = 0; n < *count; ++n) nodes[n] = n < object->nodes ? graph_node(object, static_cast<uint32_t>(n)) : nullptr;
  if (nodes == nullptr || *count > object->nodes) *count = object->nodes;
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cuGraphGetNodes(void *graph, void **nodes, size_t *count) { return count_nodes(graph, nodes, count); }
GPUMEM_EXPORT int cuGraphGetRootNodes(void *graph, void **nodes, size_t *count) { return count_nodes(graph, nodes, count); }
GPUMEM_EXPORT int cudaGraphGetNodes(void *graph, void **nodes, size_t *count) { return done(static_cast<Error>(count_nodes(graph, nodes, count))); }
GPUMEM_EXPORT int cudaGraphGetRootNodes(void *graph, void **nodes, size_t *count) { return done(static_cast<Error>(count_nodes(graph, nodes, count))); }
GPUMEM_EXPORT int cuGraphUpload(void *exec, Stream stream) {
  const Error error = exists(exec);
  return error != cuda::kSuccess ? error : check_stream(stream);
}
