// SPDX-License-Identifier: Apache-2.0
// Rarer parts of CUDA's interface, one a word on the command line, for virtual_gpu_test: memory that graphs own, nodes of graphs,
// mipmapped arrays, fills of rows, green contexts, names for per-thread default streams. Linked like an nvcc program.
// Exit status 0: all was as in CUDA; else the failing line is on standard error.

#include <string.h>

#include "estimator/cuda_interface/types.h"
#include "tests/unit/programs/parts.h"

using gpumem::cuda::MemoryNodeParameters;

extern "C" {
int cudaMalloc(void **, size_t);
int cudaFree(void *);
int cudaMemcpy(void *, const void *, size_t, int);
int cudaDeviceSynchronize();
int cudaStreamSynchronize(void *);
int cudaGraphCreate(void **, unsigned);
int cudaGraphDestroy(void *);
int cudaGraphInstantiateWithFlags(void **, void *, unsigned long long);
int cudaGraphLaunch(void *, void *);
int cudaGraphExecDestroy(void *);
int cudaGraphGetNodes(void *, void **, size_t *);
int cudaGraphNodeGetType(void *, int *);
int cudaGraphAddEmptyNode(void **, void *, const void *, size_t);
int cudaGraphAddChildGraphNode(void **, void *, const void *, size_t, void *);
int cudaGraphChildGraphNodeGetGraph(void *, void **);
int cudaGraphAddMemAllocNode(void **, void *, const void *, size_t, MemoryNodeParameters *);
int cudaGraphAddMemFreeNode(void **, void *, const void *, size_t, void *);
int cudaGraphMemAllocNodeGetParams(void *, MemoryNodeParameters *);
int cudaGraphMemFreeNodeGetParams(void *, void *);
int cudaGraphAddNode_v2(void **, void *, const void *, const void *, size_t, void *);
int cudaGraphConditionalHandleCreate(unsigned long long *, void *, unsigned, unsigned);
int cudaGraphNodeSetEnabled(void *, void *, unsigned);
int cudaGraphNodeGetEnabled(void *, void *, unsigned *);
int cudaDeviceGetGraphMemAttribute(int, int, void *);
int cudaDeviceSetGraphMemAttribute(int, int, void *);
int cudaDeviceGraphMemTrim(int);
struct Channels {
  int x, y, z, w, kind;
};
struct Requirements {
  size_t size, alignment;
  unsigned reserved[4];
};
int cudaMallocMipmappedArray(void **, const Channels *, gpumem::cuda::Extent, unsigned, unsigned);
int cudaGetMipmappedArrayLevel(void **, const void *, unsigned);
int cudaFreeMipmappedArray(void *);
int cudaArrayGetInfo(Channels *, gpumem::cuda::Extent *, unsigned *, void *);
int cudaMipmappedArrayGetMemoryRequirements(Requirements *, void *, int);
int cudaMemcpy2DToArray(void *, size_t, size_t, const void *, size_t, size_t, size_t, int);
int cudaMemcpyFromArray(void *, const void *, size_t, size_t, size_t, int);
int cudaMemcpyArrayToArray(void *, size_t, size_t, const void *, size_t, size_t, size_t, int);
int cudaCreateTextureObject(unsigned long long *, const void *, const void *, const void *);
int cudaDestroyTextureObject(unsigned long long);
int cudaMemcpy_ptds(void *, const void *, size_t, int);
int cudaMemcpyAsync_ptsz(void *, const void *, size_t, int, void *);
int cudaMemsetAsync_ptsz(void *, int, size_t, void *);
int cudaMallocAsync_ptsz(void **, size_t, void *);
int cudaFreeAsync_ptsz(void *, void *);
int cudaStreamSynchronize_ptsz(void *);
int cudaLaunchKernel_ptsz(const void *, gpumem::cuda::Dim3, gpumem::cuda::Dim3, void **, size_t, void *);
int cuInit(unsigned);
int cuMemsetD2D16_v2(uint64_t, size_t, unsigned short, size_t, size_t);
int cuMemsetD2D8Async(uint64_t, size_t, unsigned char, size_t, size_t, void *);
int cuDeviceGetDevResource(int, void *, int);
int cuDevSmResourceSplitByCount(void *, unsigned *, const void *, void *, unsigned, unsigned);
int cuDevResourceGenerateDesc(void **, void *, unsigned);
int cuGreenCtxCreate(void **, void *, int, unsigned);
int cuCtxFromGreenCtx(void **, void *);
int cuGreenCtxStreamCreate(void **, void *, unsigned, int);
int cuGreenCtxDestroy(void *);
int cuCtxPushCurrent_v2(void *);
int cuCtxPopCurrent_v2(void **);
int cuStreamDestroy(void *);
}

namespace {

void *add_allocation(void *graph, size_t bytes, void **node) {
  MemoryNodeParameters parameters{};
  parameters.poolProps.allocType = 1;
  parameters.poolProps.location = {1, 0};
  parameters.bytesize = bytes;
  CHECK(cudaGraphAddMemAllocNode(node, graph, nullptr, 0, &parameters) == 0);
  CHECK(parameters.dptr != nullptr);
  return parameters.dptr;
}

void graph_memory() {
  void *graph = nullptr, *first = nullptr, *second = nullptr, *third = nullptr, *freed = nullptr, *exec = nullptr;
  CHECK(cudaGraphCreate(&graph, 0) == 0);
  const size_t before = used();
  void *a = add_allocation(graph, 64 * kMiB, &first);
  void *b = add_allocation(graph, 32 * kMiB, &second);
  CHECK(a != b && used() == before + 96 * kMiB);
  CHECK(cudaGraphAddMemFreeNode(&freed, graph, &first, 1, a) == 0);
  void *c = add_allocation(graph, 48 * kMiB, &third);  // its life begins after a's has ended
  CHECK(c == a && used() == before + 96 * kMiB);
  MemoryNodeParameters asked{};
  void *address = nullptr;
  int type = -1;
  CHECK(cudaGraphMemAllocNodeGetParams(second, &asked) == 0 && asked.bytesize == 32 * kMiB && asked.dptr == b);
  CHECK(cudaGraphMemFreeNodeGetParams(freed, &address) == 0 && address == a);
  CHECK(cudaGraphNodeGetType(second, &type) == 0 && type == 10);
  CHECK(cudaGraphNodeGetType(freed, &type) == 0 && type == 11);
  uint64_t bytes = 0;
  CHECK(cudaDeviceGetGraphMemAttribute(0, 1, &bytes) == 0 && bytes == 96 * kMiB);
  // The instance keeps the memory when the graph is gone.
  CHECK(cudaGraphInstantiateWithFlags(&exec, graph, 0) == 0 && cudaGraphDestroy(graph) == 0);
  CHECK(used() == before + 96 * kMiB);
  CHECK(cudaGraphLaunch(exec, nullptr) == 0 && cudaStreamSynchronize(nullptr) == 0);
  int value = 7, back = 0;
  CHECK(cudaMemcpy(b, &value, sizeof value, 1) == 0 && cudaMemcpy(&back, b, sizeof back, 2) == 0 && back == 7);
  CHECK(cudaFree(b) == 0);  // what no node frees the program may
  CHECK(used() == before + 64 * kMiB);
  void *other = nullptr;
  CHECK(cudaMalloc(&other, 32 * kMiB) == 0);
  CHECK(cudaGraphExecDestroy(exec) == 0);
  CHECK(used() == before + 32 * kMiB);  // the program's own, at whatever address, lives on
  CHECK(cudaMemcpy(other, &value, sizeof value, 1) == 0 && cudaFree(other) == 0 && used() == before);
  CHECK(cudaDeviceGetGraphMemAttribute(0, 0, &bytes) == 0 && bytes == 0);
  CHECK(cudaDeviceSetGraphMemAttribute(0, 1, &bytes) == 0 && cudaDeviceGetGraphMemAttribute(0, 1, &bytes) == 0 && bytes == 0);
  CHECK(cudaDeviceGraphMemTrim(0) == 0);
}

void graph_nodes() {
  void *graph = nullptr, *child = nullptr, *node = nullptr, *inside = nullptr;
  CHECK(cudaGraphCreate(&graph, 0) == 0 && cudaGraphCreate(&child, 0) == 0);
  CHECK(cudaGraphAddEmptyNode(&node, child, nullptr, 0) == 0 && cudaGraphAddChildGraphNode(&node, graph, nullptr, 0, child) == 0);
  CHECK(cudaGraphChildGraphNodeGetGraph(node, &inside) == 0 && inside != nullptr && inside != child);
  size_t count = 0;
  CHECK(cudaGraphGetNodes(inside, nullptr, &count) == 0 && count == 1);
  unsigned enabled = 0;
  CHECK(cudaGraphNodeSetEnabled(nullptr, node, 0) == 0 && cudaGraphNodeGetEnabled(nullptr, node, &enabled) == 0 && enabled == 0);
  // A conditional node, as torch.cond is captured: its body is a graph to be filled.
  unsigned long long handle = 0;
  CHECK(cudaGraphConditionalHandleCreate(&handle, graph, 0, 0) == 0 && handle != 0);
  struct {
    int type, reserved[3];
    gpumem::cuda::ConditionalNodeParameters conditional;
    long long rest[30];
  } parameters{};
  parameters.type = 13;
  parameters.conditional.handle = handle;
  parameters.conditional.size = 2;
  CHECK(cudaGraphAddNode_v2(&node, graph, nullptr, nullptr, 0, &parameters) == 0);
  void **bodies = parameters.conditional.phGraph_out;
  CHECK(bodies != nullptr && bodies[0] != nullptr && bodies[0] != bodies[1]);
  CHECK(cudaGraphAddEmptyNode(&node, bodies[1], nullptr, 0) == 0);
  CHECK(cudaGraphGetNodes(graph, nullptr, &count) == 0 && count == 2);
  void *nodes[2] = {};
  int type = -1;
  CHECK(cudaGraphGetNodes(graph, nodes, &count) == 0 && cudaGraphNodeGetType(nodes[1], &type) == 0 && type == 13);
  CHECK(cudaGraphDestroy(child) == 0 && cudaGraphDestroy(graph) == 0);
  CHECK(cudaGraphGetNodes(inside, nullptr, &count) != 0);  // went with its node
}

void mipmaps() {
  const size_t before = used();
  void *mipmapped = nullptr, *level = nullptr, *last = nullptr;
  const Channels rgba{8, 8, 8, 8, 1};
  CHECK(cudaMallocMipmappedArray(&mipmapped, &rgba, {2048, 1024, 0}, 0, 0) == 0);
  Requirements requirements{};
  CHECK(cudaMipmappedArrayGetMemoryRequirements(&requirements, mipmapped, 0) == 0);
  CHECK(requirements.size > 2048 * 1024 * 4 * 4 / 3 && requirements.size < 2048 * 1024 * 4 * 3 / 2);
  CHECK(used() >= before + requirements.size);
  CHECK(cudaGetMipmappedArrayLevel(&level, mipmapped, 2) == 0 && cudaGetMipmappedArrayLevel(&last, mipmapped, 11) == 0);
  CHECK(cudaGetMipmappedArrayLevel(&last, mipmapped, 12) != 0);
  gpumem::cuda::Extent extent{};
  CHECK(cudaArrayGetInfo(nullptr, &extent, nullptr, level) == 0 && extent.width == 512 && extent.height == 256);
  uint32_t row[4] = {1, 2, 3, 4}, back[4] = {};
  CHECK(cudaMemcpy2DToArray(level, 0, 0, row, sizeof row, sizeof row, 1, 1) == 0);
  void *other = nullptr;
  CHECK(cudaGetMipmappedArrayLevel(&other, mipmapped, 3) == 0 && cudaMemcpyArrayToArray(other, 0, 0, level, 0, 0, sizeof row, 3) == 0);
  CHECK(cudaMemcpyFromArray(back, other, 0, 0, sizeof back, 2) == 0 && memcmp(row, back, sizeof row) == 0);
  struct {
    int type, padding;
    void *mipmapped;
    char rest[48];
  } resource = {1, 0, mipmapped, {}};
  char how[128] = {};
  unsigned long long texture = 0;
  CHECK(cudaCreateTextureObject(&texture, &resource, how, nullptr) == 0 && cudaDestroyTextureObject(texture) == 0);
  CHECK(cudaFreeMipmappedArray(mipmapped) == 0 && used() == before && cudaFreeMipmappedArray(mipmapped) != 0);
}

void fills() {
  void *memory = nullptr;
  CHECK(cudaMalloc(&memory, 4096) == 0);
  const uint64_t address = reinterpret_cast<uint64_t>(memory);
  CHECK(cuMemsetD2D16_v2(address, 64, 0x1234, 8, 3) == 0);
  CHECK(cuMemsetD2D8Async(address + 64 * 3, 64, 9, 64, 2, nullptr) == 0);
  char *bytes = static_cast<char *>(memory);
  for (int row = 0; row < 3; row++) {  // what was written is read as it was written: nobody else's bytes are believed
    unsigned short back[8] = {};
    CHECK(cudaMemcpy(back, bytes + row * 64, sizeof back, 2) == 0 && back[0] == 0x1234 && back[7] == 0x1234);
  }
  char filled[128] = {}, beside = 1;
  CHECK(cudaMemcpy(filled, bytes + 64 * 3, sizeof filled, 2) == 0 && filled[0] == 9 && filled[127] == 9);
  CHECK(cudaMemcpy(&beside, bytes + 16, 1, 2) == 0 && beside == 0);
  CHECK(cuMemsetD2D16_v2(address, 8, 1, 8, 2) != 0);    // a pitch below the width
  CHECK(cuMemsetD2D16_v2(address, 4096, 1, 8, 2) != 0); // beyond the memory
  CHECK(cudaFree(memory) == 0);
}

void green() {
  char whole[144], part[144], rest[144];
  unsigned groups = 1, count = 0;
  CHECK(cuInit(0) == 0 && cuDeviceGetDevResource(0, whole, 1) == 0);
  memcpy(&count, whole + 96, sizeof count);
  CHECK(count >= 8 && cuDeviceGetDevResource(0, whole, 1000) != 0);
  CHECK(cuDevSmResourceSplitByCount(part, &groups, whole, rest, 0, 5) == 0 && groups == 1);
  unsigned part_count = 0, rest_count = 0;
  memcpy(&part_count, part + 96, sizeof part_count);
  memcpy(&rest_count, rest + 96, sizeof rest_count);
  CHECK(part_count >= 5 && part_count % 2 == 0 && part_count + rest_count == count);
  CHECK(cuDevSmResourceSplitByCount(part, &groups, whole, rest, 0, count + 1) != 0);
  void *description = nullptr, *context = nullptr, *plain = nullptr, *stream = nullptr;
  CHECK(cuDevResourceGenerateDesc(&description, part, 1) == 0 && cuGreenCtxCreate(&context, description, 0, 1) == 0);
  CHECK(cuCtxFromGreenCtx(&plain, context) == 0 && cuCtxPushCurrent_v2(plain) == 0);
  CHECK(cuGreenCtxStreamCreate(&stream, context, 1, 0) == 0 && cuStreamDestroy(stream) == 0);
  CHECK(cuCtxPopCurrent_v2(&plain) == 0 && cuGreenCtxDestroy(context) == 0 && cuGreenCtxDestroy(context) != 0);
}

// nvcc --default-stream per-thread
void per_thread() {
  void *memory = nullptr;
  int value = 42, back = 0;
  const size_t before = used();
  CHECK(cudaMallocAsync_ptsz(&memory, 64 * kMiB, nullptr) == 0 && used() >= before + 64 * kMiB);
  CHECK(cudaMemsetAsync_ptsz(memory, 0, 4096, nullptr) == 0);
  CHECK(cudaMemcpyAsync_ptsz(memory, &value, sizeof value, 1, nullptr) == 0);
  CHECK(cudaMemcpy_ptds(&back, memory, sizeof back, 2) == 0 && back == 42);
  CHECK(cudaLaunchKernel_ptsz(nullptr, {1, 1, 1}, {32, 1, 1}, nullptr, 0, nullptr) != 0);
  CHECK(cudaFreeAsync_ptsz(memory, nullptr) == 0 && cudaStreamSynchronize_ptsz(nullptr) == 0 && cudaDeviceSynchronize() == 0);
  CHECK(used() == before);
}

constexpr Part kParts[] = {{"graph_memory", graph_memory}, {"graph_nodes", graph_nodes}, {"mipmaps", mipmaps},
              {"fills", fills},               {"green", green},             {"per_thread", per_thread}};

}  // namespace

int main(int count, char **words) { return run_part(kParts, count, words); }
