// SPDX-License-Identifier: Apache-2.0
// What is kept of a graph's nodes. See graph_nodes.h.

#include "estimator/virtual_gpu/device/graph_nodes.h"

#include <string.h>

#include "estimator/virtual_gpu/device/external.h"

namespace gpumem::virtual_gpu {
namespace {

constexpr size_t kCopyFlagsBytes = 16;  // before a copy's parameters in the generic structure
constexpr int kCapturedBits = 24;  // graph_node() in streams.h

// How long the parameters of a type are in the generic structure; 0: they are not kept.
size_t bytes_of(NodeType type) {
  switch (type) {
    case kFillNode: return kFillBytes;
    case kHostNode: return kHostBytes;
    case kRecordEventNode:
    case kWaitEventNode: return kEventBytes;
    default: return 0;
  }
}

Error keep(GraphNode *node, const void *parameters, size_t bytes) {
  char *kept = static_cast<char *>(allocate_zeroed(bytes));
  if (kept == nullptr) return cuda::kOperatingSystem;
  memcpy(kept, parameters, bytes);
  release_zeroed(node->parameters);
  node->parameters = kept;
  node->parameter_bytes = static_cast<uint32_t>(bytes);
  return cuda::kSuccess;
}

// A structure with arrays behind it, so that it points into itself.
Error keep_semaphores(GraphNode *node, const SemaphoreNodeParameters &given) {
  const size_t handles = given.count * sizeof(void *), own = sizeof(given);
  char *kept = static_cast<char *>(allocate_zeroed(own + handles + given.count * kSemaphoreBytes));
  if (kept == nullptr) return cuda::kOperatingSystem;
  memcpy(kept + own, given.semaphores, handles);
  memcpy(kept + own + handles, given.parameters, given.count * kSemaphoreBytes);
  const SemaphoreNodeParameters inside = {reinterpret_cast<void **>(kept + own), kept + own + handles, given.count};
  memcpy(kept, &inside, own);
  release_zeroed(node->parameters);
  node->parameters = kept;
  node->parameter_bytes = sizeof(inside);
  return cuda::kSuccess;
}

Error keep_batch(GraphNode *node, const BatchNodeParameters &given) {
  const size_t own = sizeof(given);
  char *kept = static_cast<char *>(allocate_zeroed(own + given.count * kOperationBytes));
  if (kept == nullptr) return cuda::kOperatingSystem;
  memcpy(kept + own, given.operations, given.count * kOperationBytes);
  const BatchNodeParameters inside = {given.context, given.count, kept + own, given.flags};
  memcpy(kept, &inside, own);
  release_zeroed(node->parameters);
  node->parameters = kept;
  node->parameter_bytes = sizeof(inside);
  return cuda::kSuccess;
}

Error check(const SemaphoreNodeParameters *given) {
  if (given == nullptr || given->semaphores == nullptr || given->parameters == nullptr || given->count == 0 || given->count > kMostInNode)
    return cuda::kInvalidValue;
  for (unsigned s = 0; s < given->count; ++s)
    if (!is_external_semaphore(given->semaphores[s])) return cuda::kInvalidHandle;
  return cuda::kSuccess;
}

Error check(const BatchNodeParameters *given) {
  return given == nullptr || given->operations == nullptr || given->count == 0 || given->count > kMostInNode ? cuda::kInvalidValue : cuda::kSuccess;
}

// The graph's id and the node's number in it; false: no node. A captured node's are in its handle.
bool place_of(const void *handle, uint64_t *graph, uint32_t *number) {
  const GraphNode *node = node_of(handle);
  if (node != nullptr) {
    *graph = node->graph != nullptr ? node->graph->id : 0;
    *number = node->number;
    return true;
  }
  if (was_object(handle)) return false;  // one that is gone, or of another kind
  const uint64_t word = reinterpret_cast<uint64_t>(handle);
  const uint64_t below = word & ((uint64_t{1} << kCapturedBits) - 1);
  if (below < 16 || word >> kCapturedBits == 0 || word >> kCapturedBits > ~uint32_t{0}) return false;
  *graph = word >> kCapturedBits;
  *number = static_cast<uint32_t>(below - 16);
  return true;
}

bool is_node(const void *handle) {
  uint64_t graph;
  uint32_t number;
  return place_of(handle, &graph, &number);
}

// Adds a node and calls keep_in(node); a node that could not keep its parameters is as good as destroyed.
template <class Keep>
Error add(void **handle, void *graph, NodeType type, const Keep &keep_in) {
  Error error = add_node(handle, graph, type);
  if (error != cuda::kSuccess) return error;
  error = keep_in(node_of(*handle));
  if (error != cuda::kSuccess) destroy_node(*handle);
  return error;
}

// New parameters for a node of that type. A captured node is a number and keeps nothing.
template <class Keep>
Error set(void *handle, NodeType type, const Keep &keep_in) {
  if (!is_node(handle)) return cuda::kInvalidValue;
  GraphNode *node = node_of(handle);
  if (node == nullptr) return cuda::kSuccess;
  return node->type == type ? keep_in(node) : cuda::kInvalidValue;
}

}  // namespace

Error add_kept(void **handle, void *graph, NodeType type, const void *parameters, size_t bytes) {
  if (parameters == nullptr) return cuda::kInvalidValue;
  return add(handle, graph, type, [=](GraphNode *node) { return keep(node, parameters, bytes); });
}
Error add_semaphores(void **handle, void *graph, NodeType type, const SemaphoreNodeParameters *parameters) {
  const Error error = check(parameters);
  return error != cuda::kSuccess ? error : add(handle, graph, type, [=](GraphNode *node) { return keep_semaphores(node, *parameters); });
}
Error add_batch(void **handle, void *graph, const BatchNodeParameters *parameters) {
  const Error error = check(parameters);
  return error != cuda::kSuccess ? error : add(handle, graph, kBatchNode, [=](GraphNode *node) { return keep_batch(node, *parameters); });
}
Error add_with_parameters(void **handle, void *graph, NodeType type, const void *own, size_t copy_bytes) {
  if (type == kCopyNode) return add_kept(handle, graph, type, static_cast<const char *>(own) + kCopyFlagsBytes, copy_bytes);
  if (type == kSignalNode || type == kWaitNode) return add_semaphores(handle, graph, type, static_cast<const SemaphoreNodeParameters *>(own));
  if (type == kBatchNode) return add_batch(handle, graph, static_cast<const BatchNodeParameters *>(own));
  if (const size_t bytes = bytes_of(type); bytes > 0) return add_kept(handle, graph, type, own, bytes);
  return add_node(handle, graph, type);
}

Error set_kept(void *handle, NodeType type, const void *parameters, size_t bytes) {
  if (parameters == nullptr) return cuda::kInvalidValue;
  return set(handle, type, [=](GraphNode *node) { return keep(node, parameters, bytes); });
}
Error set_semaphores(void *handle, NodeType type, const SemaphoreNodeParameters *parameters) {
  const Error error = check(parameters);
  return error != cuda::kSuccess ? error : set(handle, type, [=](GraphNode *node) { return keep_semaphores(node, *parameters); });
}
Error set_batch(void *handle, const BatchNodeParameters *parameters) {
  const Error error = check(parameters);
  return error != cuda::kSuccess ? error : set(handle, kBatchNode, [=](GraphNode *node) { return keep_batch(node, *parameters); });
}
Error check_semaphores(const void *exec, const SemaphoreNodeParameters *parameters) {
  const Error error = check_exec(exec);
  return error != cuda::kSuccess ? error : check(parameters);
}
Error check_batch(const void *exec, const BatchNodeParameters *parameters) {
  const Error error = check_exec(exec);
  return error != cuda::kSuccess ? error : check(parameters);
}

Error kept_parameters(const void *handle, NodeType type, void *parameters, size_t bytes, const char *function) {
  const GraphNode *node = node_of(handle);
  if (parameters == nullptr || !is_node(handle) || (node != nullptr && node->type != type)) return cuda::kInvalidValue;
  if (node == nullptr || node->parameters == nullptr || node->parameter_bytes != bytes) {
    report_missing(function);  // captured, or added by the other interface
    return cuda::kNotSupported;
  }
  memcpy(parameters, node->parameters, bytes);
  return cuda::kSuccess;
}

Error graph_id(const void *handle, unsigned *id) {
  const Graph *graph = find<Graph>(handle, kGraphObject);
  if (graph == nullptr || id == nullptr) return cuda::kInvalidValue;
  *id = static_cast<unsigned>(graph->id);
  return cuda::kSuccess;
}

Error exec_id(const void *handle, unsigned *id) {
  const GraphExec *exec = find<GraphExec>(handle, kGraphExecObject);
  if (exec == nullptr || id == nullptr) return cuda::kInvalidValue;
  *id = static_cast<unsigned>(exec->id);
  return cuda::kSuccess;
}

Error node_local_id(const void *handle, unsigned *id) {
  uint64_t graph = 0;
  uint32_t number = 0;
  if (id == nullptr || !place_of(handle, &graph, &number)) return cuda::kInvalidValue;
  *id = number;
  return cuda::kSuccess;
}

Error node_tools_id(const void *handle, unsigned long long *id) {
  uint64_t graph = 0;
  uint32_t number = 0;
  if (id == nullptr || !place_of(handle, &graph, &number)) return cuda::kInvalidValue;
  *id = graph << 32 | number;
  return cuda::kSuccess;
}

Error node_graph(const void *handle, void **graph, const char *function) {
  const GraphNode *node = node_of(handle);
  if (graph == nullptr || !is_node(handle)) return cuda::kInvalidValue;
  if (node == nullptr || node->graph == nullptr) {
    report_missing(function);  // captured: which object has its graph's id is not kept
    return cuda::kNotSupported;
  }
  *graph = node->graph;
  return cuda::kSuccess;
}

// A clone keeps no more than how many nodes there are: those of the same numbers, as captured ones.
Error node_in_clone(void **node, const void *original, const void *clone) {
  const Graph *graph = find<Graph>(clone, kGraphObject);
  uint64_t of = 0;
  uint32_t number = 0;
  if (node == nullptr || graph == nullptr || !place_of(original, &of, &number)) return cuda::kInvalidValue;
  if (graph->cloned_from == 0 || graph->cloned_from != of || number >= graph->nodes) return cuda::kInvalidValue;
  *node = graph_node(graph, number);
  return cuda::kSuccess;
}

}  // namespace gpumem::virtual_gpu
