// SPDX-License-Identifier: Apache-2.0
// Graphs: made by a capture (streams.h) or node by node, instantiated, launched as that many launches of nothing. Part of libgpumem_vgpu.so.
//
// Note [Nodes of graphs]
// A captured node is a number. One that a program adds by hand is an object that keeps its type, whether it is enabled, the graphs
// inside it, the memory that it allocates and most parameters (graph_nodes.h); edges are not kept, since nothing is run: what would
// read them back is missing. The bodies of conditional nodes are graphs of their own and never run.
//
// Note [Memory of graphs]
// An allocation node has its memory and is charged from the moment it is added, until the program frees the memory or what holds the
// node is destroyed: the instance, once there is one, else the graph. CUDA binds memory only when the graph is instantiated or
// launched, so this is the most that it holds, a little early. What a free node of the same graph has freed serves later allocation
// nodes of that graph, as lifetimes that do not overlap share memory in CUDA. Instances have no pool of their own, so there is
// nothing to trim. Memory that the program freed is not charged again by a second launch.
//
// Both interfaces call these with the program's arguments: null, dangling and foreign handles get an error. Threads: as in CUDA, one at
// a time for a graph.
#pragma once

#include "estimator/virtual_gpu/device/streams.h"

namespace gpumem::virtual_gpu {

enum NodeType : int {  // cudaGraphNodeType, CUgraphNodeType
  kKernelNode, kCopyNode, kFillNode, kHostNode, kGraphNode, kEmptyNode, kWaitEventNode, kRecordEventNode, kSignalNode, kWaitNode,
  kAllocationNode, kFreeNode, kBatchNode, kConditionalNode,
};

Error create_graph(void **graph);
Error clone_graph(void **clone, void *graph);
Error destroy_graph(void *graph);
Error instantiate_graph(void **exec, void *graph);
Error update_exec(void *exec, void *graph);
Error upload_exec(void *exec, Stream stream);
Error launch_exec(void *exec, Stream stream);
Error destroy_exec(void *exec);
Error check_exec(const void *exec);
Error check_graph(const void *graph);
// The first *count nodes, the rest nullptr; without a place for them, or with one too large, *count becomes their number.
Error graph_nodes(void *graph, void **nodes, size_t *count);
Error print_graph(void *graph, const char *path);

Error add_node(void **node, void *graph, NodeType type);
Error add_child(void **node, void *graph, void *child);
Error add_allocation(void **node, void *graph, cuda::MemoryNodeParameters *parameters);
Error add_free(void **node, void *graph, void *pointer);
// `parameters`: cudaGraphNodeParams, CUgraphNodeParams: type, three words, then the type's own.
// `copy_bytes`: graph_nodes.h.
Error add_any(void **node, void *graph, void *parameters, size_t copy_bytes);

Error node_type(const void *node, int *type);
Error node_enabled(const void *node, unsigned *enabled);
Error enable_node(void *node, unsigned enabled);
Error node_child(const void *node, void **graph);
Error node_allocation(const void *node, cuda::MemoryNodeParameters *parameters);
Error node_freed(const void *node, void *pointer);  // writes the freed address to *pointer
Error destroy_node(void *node);

// cudaGraphMemAttributeType: 0 used, 1 its peak, 2 reserved, 3 its peak, in bytes; setting any resets the peaks.
Error graph_memory(int device, int attribute, void *bytes);
Error reset_graph_memory(int device, int attribute, const void *bytes);

}  // namespace gpumem::virtual_gpu
