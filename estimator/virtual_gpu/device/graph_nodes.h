// SPDX-License-Identifier: Apache-2.0
// Nodes that a program added to a graph by hand: what is kept of them, and said again. Part of libgpumem_vgpu.so; see graphs.h.
//
// Note [Parameters of nodes]
// Of copies, fills, host functions, events, external semaphores and batches of flags the parameters are kept and said again; arrays
// in them are copied and live as long as the node, or until new ones are set, as in CUDA. Those of kernels are not: CUDA copies the
// arguments, whose sizes only the kernel's image has. What was captured is a number without parameters.
#pragma once

#include "estimator/virtual_gpu/device/graphs.h"
#include "estimator/virtual_gpu/device/objects.h"

namespace gpumem::virtual_gpu {

struct GraphNode {
  uint32_t kind;
  NodeType type;
  GraphNode *next;       // of the same graph, newest first
  uint32_t number;
  uint32_t disabled;
  uint32_t freed;        // an allocation whose memory a free node gave back
  int device;
  void *memory;          // allocated or freed
  size_t bytes;          // of an allocation; 0: memory of an earlier one of the graph, which owns it
  size_t wanted_bytes;   // what the program asked for
  void **graphs;         // inside it
  Graph *graph;          // that it was added to; nullptr once an instance owns it
  char *parameters;      // as the program gave them; nullptr: not kept
  uint32_t graph_count, parameter_bytes;
};

inline GraphNode *node_of(const void *handle) { return find<GraphNode>(handle, kGraphNodeObject); }

// cudaExternalSemaphore…NodeParams, CUDA_EXT_SEM_…_NODE_PARAMS, each with parameters of kSemaphoreBytes; CUDA_BATCH_MEM_OP_NODE_PARAMS.
struct SemaphoreNodeParameters {
  void *const *semaphores;
  const void *parameters;
  unsigned count;
};
struct BatchNodeParameters {
  void *context;
  unsigned count;
  const void *operations;
  unsigned flags;
};
constexpr size_t kSemaphoreBytes = 144, kOperationBytes = 48;
constexpr unsigned kMostInNode = 1 << 16;  // semaphores or operations: more is no count

// Adds a node with the parameters of its type, as long as `bytes` says: copies 160 (runtime) or 200 (driver), fills 40, host functions
// 16, events 8 (the handle). Of semaphores and batches one of the structures above.
Error add_kept(void **node, void *graph, NodeType type, const void *parameters, size_t bytes);
Error add_semaphores(void **node, void *graph, NodeType type, const SemaphoreNodeParameters *parameters);
Error add_batch(void **node, void *graph, const BatchNodeParameters *parameters);
// `own`: what follows the type in cudaGraphNodeParams or CUgraphNodeParams; `copy_bytes`: how long the interface's parameters of a copy are.
Error add_with_parameters(void **node, void *graph, NodeType type, const void *own, size_t copy_bytes);
constexpr size_t kRuntimeCopyBytes = sizeof(cuda::Copy3D), kDriverCopyBytes = 200;  // CUDA_MEMCPY3D
// cudaMemsetParams and CUDA_MEMSET_NODE_PARAMS, cudaHostNodeParams and CUDA_HOST_NODE_PARAMS, a handle.
constexpr size_t kFillBytes = 40, kHostBytes = 16, kEventBytes = sizeof(void *);

// New parameters. Captured nodes take them, too, and keep none.
Error set_kept(void *node, NodeType type, const void *parameters, size_t bytes);
Error set_semaphores(void *node, NodeType type, const SemaphoreNodeParameters *parameters);
Error set_batch(void *node, const BatchNodeParameters *parameters);
// Those of an instance's node are checked and not kept.
Error check_semaphores(const void *exec, const SemaphoreNodeParameters *parameters);
Error check_batch(const void *exec, const BatchNodeParameters *parameters);

// What was kept. Where nothing was, the function is reported as missing by its name.
Error kept_parameters(const void *node, NodeType type, void *parameters, size_t bytes, const char *function);

// --- Names of graphs and nodes, for tools ---

Error graph_id(const void *graph, unsigned *id);
Error exec_id(const void *exec, unsigned *id);
Error node_local_id(const void *node, unsigned *id);
Error node_tools_id(const void *node, unsigned long long *id);
Error node_graph(const void *node, void **graph, const char *function);
Error node_in_clone(void **node, const void *original, const void *clone);

}  // namespace gpumem::virtual_gpu
