// SPDX-License-Identifier: Apache-2.0
// Graphs, their nodes and their memory. Part of libgpumem_vgpu.so, preloaded into jobs.

#include "estimator/virtual_gpu/device/graphs.h"

#include <stdio.h>
#include <string.h>

#include "estimator/virtual_gpu/device/graph_nodes.h"
#include "estimator/virtual_gpu/device/memory.h"
#include "estimator/virtual_gpu/device/objects.h"
#include "estimator/virtual_gpu/device/pools.h"

namespace gpumem::virtual_gpu {

namespace {

constexpr size_t kNoSmaller = size_t{1} << 20;  // keeps allocations out of shared slabs: each has a range of its own
constexpr uint32_t kMostBodies = 16;

struct Used {
  uint64_t bytes, peak;
};
Lock used_lock;
Used used[book::kMaxDevices];

Graph *graph_of(const void *handle) { return find<Graph>(handle, kGraphObject); }
GraphExec *exec_of(const void *handle) { return find<GraphExec>(handle, kGraphExecObject); }

void count_used(int device, int64_t bytes) {
  Locked locked(used_lock);
  Used &of = used[device];
  of.bytes += static_cast<uint64_t>(bytes);
  if (of.bytes > of.peak) of.peak = of.bytes;
}

// The node's memory is still what it allocated: the program has not freed it.
bool holds_memory(const GraphNode &node) { return node.bytes != 0 && find_range(node.memory).owner == &node; }

Error allocate_for(GraphNode *node, size_t bytes) {
  const size_t least = bytes > kNoSmaller ? bytes : kNoSmaller + 1;
  const Error error = allocate_device(node->device, least, &node->memory);
  if (error != cuda::kSuccess) return error;
  Range range = remove_range(reinterpret_cast<uintptr_t>(node->memory), RangeKind::device);
  range.owner = node;
  insert_range(range);  // there was room a moment ago
  node->bytes = least;
  count_used(node->device, static_cast<int64_t>(least));
  return cuda::kSuccess;
}

void release_memory(GraphNode *node) {
  if (node->type != kAllocationNode || node->bytes == 0) return;
  if (holds_memory(*node)) free_device(node->memory);
  count_used(node->device, -static_cast<int64_t>(node->bytes));
  node->bytes = 0;
}

void delete_node(GraphNode *node) {
  release_memory(node);
  for (uint32_t i = 0; i < node->graph_count; ++i) destroy_graph(node->graphs[i]);
  release_zeroed(node->graphs);
  release_zeroed(node->parameters);
  delete_object(node);
}

void delete_nodes(GraphNode *node) {
  while (node != nullptr) {
    GraphNode *next = node->next;
    delete_node(node);
    node = next;
  }
}

GraphNode *new_node(Graph *graph, NodeType type) {
  GraphNode *node = make<GraphNode>(kGraphNodeObject);
  if (node == nullptr) return nullptr;
  node->type = type;
  node->graph = graph;
  node->number = graph->nodes++;
  node->next = graph->known;
  graph->known = node;
  return node;
}

// Graphs of the node's own, for its bodies.
Error give_bodies(GraphNode *node, uint32_t count) {
  node->graphs = static_cast<void **>(allocate_zeroed(count * sizeof(void *)));
  if (node->graphs == nullptr) return cuda::kOperatingSystem;
  for (; node->graph_count < count; ++node->graph_count)
    if ((node->graphs[node->graph_count] = new_graph()) == nullptr) return cuda::kOperatingSystem;
  return cuda::kSuccess;
}

}  // namespace

Error create_graph(void **graph) {
  const Error error = check_current();
  if (error != cuda::kSuccess) return error;
  if (graph == nullptr) return cuda::kInvalidValue;
  *graph = new_graph();
  return *graph != nullptr ? cuda::kSuccess : cuda::kOperatingSystem;
}

Error clone_graph(void **clone, void *graph) {
  const Graph *source = graph_of(graph);
  if (clone == nullptr || source == nullptr) return cuda::kInvalidValue;
  Graph *made = new_graph();
  if (made == nullptr) return cuda::kOperatingSystem;
  made->nodes = source->nodes;
  made->cloned_from = source->id;
  *clone = made;
  return cuda::kSuccess;
}

Error destroy_graph(void *handle) {
  Graph *graph = graph_of(handle);
  if (graph == nullptr) return cuda::kInvalidValue;
  delete_nodes(graph->known);
  delete_object(graph);
  return cuda::kSuccess;
}

Error instantiate_graph(void **exec, void *graph) {
  Graph *source = graph_of(graph);
  if (source == nullptr || exec == nullptr) return cuda::kInvalidValue;
  GraphExec *made = make<GraphExec>(kGraphExecObject);
  if (made == nullptr) return cuda::kOperatingSystem;
  made->nodes = source->nodes;
  made->id = take_id();
  // Nodes stay the graph's; those with memory go with the first instance, CUDA allows no second one.
  for (GraphNode **link = &source->known; *link != nullptr;) {
    GraphNode *node = *link;
    if (node->type != kAllocationNode && node->type != kFreeNode) {
      link = &node->next;
      continue;
    }
    *link = node->next;
    node->graph = nullptr;
    node->next = made->memory_nodes;
    made->memory_nodes = node;
  }
  *exec = made;
  return cuda::kSuccess;
}

Error check_exec(const void *exec) { return exec_of(exec) != nullptr ? cuda::kSuccess : cuda::kInvalidValue; }
Error check_graph(const void *graph) { return graph_of(graph) != nullptr ? cuda::kSuccess : cuda::kInvalidValue; }

Error update_exec(void *exec, void *graph) {
  GraphExec *object = exec_of(exec);
  const Graph *source = graph_of(graph);
  if (object == nullptr || source == nullptr) return cuda::kInvalidValue;
  object->nodes = source->nodes;
  return cuda::kSuccess;
}

Error upload_exec(void *exec, Stream stream) {
  const Error error = check_exec(exec);
  return error != cuda::kSuccess ? error : check_stream(stream);
}

Error launch_exec(void *handle, Stream stream) {
  const Error error = check_stream(stream);
  if (error != cuda::kSuccess) return error;
  GraphExec *exec = exec_of(handle);
  if (exec == nullptr) return cuda::kInvalidValue;
  // Memory that another graph allocated and this one frees.
  for (GraphNode *node = exec->memory_nodes; node != nullptr; node = node->next)
    if (node->type == kFreeNode && !node->freed && find_range(node->memory).kind != RangeKind::none) free_queued(node->memory);
  return launch_graph(exec, stream);
}

Error destroy_exec(void *handle) {
  GraphExec *exec = exec_of(handle);
  if (exec == nullptr) return cuda::kInvalidValue;
  delete_nodes(exec->memory_nodes);
  delete_object(exec);
  return cuda::kSuccess;
}

Error graph_nodes(void *handle, void **nodes, size_t *count) {
  const Graph *graph = graph_of(handle);
  if (graph == nullptr || count == nullptr) return cuda::kInvalidValue;
  if (nodes != nullptr) {
    for (size_t n = 0; n < *count; ++n) nodes[n] = n < graph->nodes ? graph_node(graph, static_cast<uint32_t>(n)) : nullptr;
    for (GraphNode *node = graph->known; node != nullptr; node = node->next)
      if (node->number < *count) nodes[node->number] = node;
  }
  if (nodes == nullptr || *count > graph->nodes) *count = graph->nodes;
  return cuda::kSuccess;
}

Error print_graph(void *handle, const char *path) {
  const Graph *graph = graph_of(handle);
  if (graph == nullptr || path == nullptr) return cuda::kInvalidValue;
  FILE *file = fopen(path, "we");
  if (file == nullptr) return cuda::kOperatingSystem;
  fprintf(file, "digraph dot {\n  label=\"virtual GPU: %u nodes, not recorded one by one\"\n}\n", graph->nodes);
  fclose(file);
  return cuda::kSuccess;
}

Error add_node(void **node, void *graph, NodeType type) {
  Graph *object = graph_of(graph);
  if (node == nullptr || object == nullptr) return cuda::kInvalidValue;
  *node = new_node(object, type);
  return *node != nullptr ? cuda::kSuccess : cuda::kOperatingSystem;
}

Error add_child(void **node, void *graph, void *child) {
  const Graph *inside = graph_of(child);
  if (inside == nullptr) return cuda::kInvalidValue;
  const uint32_t nodes = inside->nodes;
  Error error = add_node(node, graph, kGraphNode);
  if (error == cuda::kSuccess) error = give_bodies(node_of(*node), 1);
  if (error != cuda::kSuccess) return error;
  graph_of(node_of(*node)->graphs[0])->nodes = nodes;
  if (nodes > 1) graph_of(graph)->nodes += nodes - 1;  // a launch takes as long
  return cuda::kSuccess;
}

Error add_allocation(void **handle, void *graph, cuda::MemoryNodeParameters *parameters) {
  if (handle == nullptr || graph_of(graph) == nullptr || parameters == nullptr || parameters->bytesize == 0) return cuda::kInvalidValue;
  const int device = parameters->poolProps.location.id;
  Error error = check_device(device);
  if (error != cuda::kSuccess) return error;
  const size_t bytes = parameters->bytesize;
  GraphNode *freed = nullptr;
  for (GraphNode *each = graph_of(graph)->known; each != nullptr; each = each->next)
    if (each->type == kAllocationNode && each->freed && each->device == device && each->bytes >= bytes && holds_memory(*each) &&
        (freed == nullptr || each->bytes < freed->bytes))
      freed = each;
  GraphNode *node = new_node(graph_of(graph), kAllocationNode);
  if (node == nullptr) return cuda::kOperatingSystem;
  node->device = device;
  node->wanted_bytes = bytes;
  if (freed != nullptr) {
    freed->freed = 0;
    node->memory = freed->memory;
  } else if ((error = allocate_for(node, bytes)) != cuda::kSuccess) {
    destroy_node(node);
    return error;
  }
  parameters->dptr = node->memory;
  *handle = node;
  return cuda::kSuccess;
}

Error add_free(void **handle, void *graph, void *pointer) {
  if (pointer == nullptr) return cuda::kInvalidValue;
  const Error error = add_node(handle, graph, kFreeNode);
  if (error != cuda::kSuccess) return error;
  GraphNode *node = node_of(*handle);
  node->memory = pointer;
  for (GraphNode *each = graph_of(graph)->known; each != nullptr; each = each->next)
    if (each->type == kAllocationNode && each->memory == pointer && each->bytes != 0) each->freed = node->freed = 1;
  return cuda::kSuccess;
}

Error add_any(void **handle, void *graph, void *parameters, size_t copy_bytes) {
  if (parameters == nullptr) return cuda::kInvalidValue;
  int type;
  memcpy(&type, parameters, sizeof(type));
  if (type < kKernelNode || type > kConditionalNode) return cuda::kInvalidValue;
  char *own = static_cast<char *>(parameters) + 16;
  void *first;
  memcpy(&first, own, sizeof(first));
  switch (type) {
    case kGraphNode: return add_child(handle, graph, first);
    case kAllocationNode: return add_allocation(handle, graph, reinterpret_cast<cuda::MemoryNodeParameters *>(own));
    case kFreeNode: return add_free(handle, graph, first);
    default: break;
  }
  const uint32_t bodies = type == kConditionalNode ? reinterpret_cast<cuda::ConditionalNodeParameters *>(own)->size : 0;
  if (bodies > kMostBodies) return cuda::kInvalidValue;
  Error error = add_with_parameters(handle, graph, static_cast<NodeType>(type), own, copy_bytes);
  if (error != cuda::kSuccess || bodies == 0) return error;
  error = give_bodies(node_of(*handle), bodies);
  reinterpret_cast<cuda::ConditionalNodeParameters *>(own)->phGraph_out = node_of(*handle)->graphs;
  return error;
}

Error node_type(const void *handle, int *type) {
  if (handle == nullptr || type == nullptr) return cuda::kInvalidValue;
  const GraphNode *node = node_of(handle);
  *type = node != nullptr ? node->type : kKernelNode;  // captured: most are
  return cuda::kSuccess;
}

Error node_enabled(const void *handle, unsigned *enabled) {
  const GraphNode *node = node_of(handle);
  if (node == nullptr || enabled == nullptr) return cuda::kInvalidValue;
  *enabled = !node->disabled;
  return cuda::kSuccess;
}

Error enable_node(void *handle, unsigned enabled) {
  GraphNode *node = node_of(handle);
  if (node == nullptr) return cuda::kInvalidValue;
  node->disabled = enabled == 0;
  return cuda::kSuccess;
}

Error node_child(const void *handle, void **graph) {
  const GraphNode *node = node_of(handle);
  if (node == nullptr || node->type != kGraphNode || graph == nullptr) return cuda::kInvalidValue;
  *graph = node->graphs[0];
  return cuda::kSuccess;
}

Error node_allocation(const void *handle, cuda::MemoryNodeParameters *parameters) {
  const GraphNode *node = node_of(handle);
  if (node == nullptr || node->type != kAllocationNode || parameters == nullptr) return cuda::kInvalidValue;
  *parameters = {};
  parameters->poolProps.allocType = 1;       // pinned, the only kind
  parameters->poolProps.location = {1, node->device};
  parameters->bytesize = node->wanted_bytes;
  parameters->dptr = node->memory;
  return cuda::kSuccess;
}

Error node_freed(const void *handle, void *pointer) {
  const GraphNode *node = node_of(handle);
  if (node == nullptr || node->type != kFreeNode || pointer == nullptr) return cuda::kInvalidValue;
  memcpy(pointer, &node->memory, sizeof(node->memory));
  return cuda::kSuccess;
}

Error destroy_node(void *handle) {
  GraphNode *node = node_of(handle);
  if (node == nullptr) return cuda::kInvalidValue;
  node->disabled = 1;
  release_memory(node);  // the object goes with its graph
  return cuda::kSuccess;
}

Error graph_memory(int device, int attribute, void *bytes) {
  if (device < 0 || device >= visible_device_count()) return cuda::kInvalidDevice;
  if (attribute < 0 || attribute > 3 || bytes == nullptr) return cuda::kInvalidValue;
  Locked locked(used_lock);
  const uint64_t value = attribute % 2 == 0 ? used[device].bytes : used[device].peak;
  memcpy(bytes, &value, sizeof(value));
  return cuda::kSuccess;
}

Error reset_graph_memory(int device, int attribute, const void *bytes) {
  if (device < 0 || device >= visible_device_count()) return cuda::kInvalidDevice;
  if (bytes == nullptr || (attribute != 1 && attribute != 3)) return cuda::kInvalidValue;
  Locked locked(used_lock);
  used[device].peak = used[device].bytes;
  return cuda::kSuccess;
}

}  // namespace gpumem::virtual_gpu
