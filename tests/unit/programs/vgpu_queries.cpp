// SPDX-License-Identifier: Apache-2.0
// What CUDA says again of what a program gave it, one part a word on the command line, for virtual_gpu_test: textures, parameters and
// names of graphs' nodes, execution contexts; and copies in batches. Linked like an nvcc program.
// Exit status 0: all was as in CUDA; else the failing line is on standard error.

#include <fcntl.h>
#include <string.h>

#include "estimator/cuda_interface/types.h"
#include "tests/unit/programs/parts.h"

using gpumem::cuda::Copy3D;

extern "C" {
struct Channels {
  int x, y, z, w, kind;
};
struct SemaphoreHandle {
  int type;
  union {
    int descriptor;
    void *words[2];
  } handle;
  unsigned flags;
};
struct SemaphoreParameters {  // cudaExternalSemaphoreSignalParams and …WaitParams
  unsigned long long value;
  char rest[136];
};
struct SemaphoreNode {
  void **semaphores;
  SemaphoreParameters *parameters;
  unsigned count;
};
struct BatchOperation {
  int operation;
  uint64_t address, value, rest[3];
};
struct BatchNode {
  void *context;
  unsigned count;
  BatchOperation *operations;
  unsigned flags;
};
struct Fill {
  void *to;
  size_t pitch;
  unsigned value, element;
  size_t width, height;
};
struct HostNode {
  void (*function)(void *);
  void *data;
};
int cudaMalloc(void **, size_t);
int cudaFree(void *);
int cudaMemcpy(void *, const void *, size_t, int);
int cudaMallocArray(void **, const Channels *, size_t, size_t, unsigned);
int cudaFreeArray(void *);
int cudaCreateTextureObject(unsigned long long *, const void *, const void *, const void *);
int cudaCreateTextureObject_v2(unsigned long long *, const void *, const void *, const void *);
int cudaDestroyTextureObject(unsigned long long);
int cudaGetTextureObjectResourceDesc(void *, unsigned long long);
int cudaGetTextureObjectTextureDesc(void *, unsigned long long);
int cudaGetTextureObjectTextureDesc_v2(void *, unsigned long long);
int cudaGetTextureObjectResourceViewDesc(void *, unsigned long long);
int cudaCreateSurfaceObject(unsigned long long *, const void *);
int cudaDestroySurfaceObject(unsigned long long);
int cudaGetSurfaceObjectResourceDesc(void *, unsigned long long);
int cuTexObjectCreate(unsigned long long *, const void *, const void *, const void *);
int cuTexObjectDestroy(unsigned long long);
int cuTexObjectGetTextureDesc(void *, unsigned long long);
int cuTexObjectGetResourceViewDesc(void *, unsigned long long);
int cudaImportExternalSemaphore(void **, const SemaphoreHandle *);
int cudaDestroyExternalSemaphore(void *);
int cudaEventCreate(void **);
int cudaStreamCreate(void **);
int cudaStreamDestroy(void *);
int cudaStreamSynchronize(void *);
int cudaStreamBeginCapture(void *, int);
int cudaStreamEndCapture(void *, void **);
int cudaMemsetAsync(void *, int, size_t, void *);
int cudaGraphCreate(void **, unsigned);
int cudaGraphDestroy(void *);
int cudaGraphClone(void **, void *);
int cudaGraphInstantiateWithFlags(void **, void *, unsigned long long);
int cudaGraphExecDestroy(void *);
int cudaGraphLaunch(void *, void *);
int cudaGraphGetNodes(void *, void **, size_t *);
int cudaGraphNodeGetType(void *, int *);
int cudaGraphAddNode_v2(void **, void *, const void *, const void *, size_t, void *);
int cudaGraphAddMemcpyNode(void **, void *, const void *, size_t, const Copy3D *);
int cudaGraphAddMemcpyNode1D(void **, void *, const void *, size_t, void *, const void *, size_t, int);
int cudaGraphMemcpyNodeGetParams(void *, Copy3D *);
int cudaGraphMemcpyNodeSetParams(void *, const Copy3D *);
int cuGraphMemcpyNodeGetParams(void *, void *);
int cudaGraphAddMemsetNode(void **, void *, const void *, size_t, const Fill *);
int cudaGraphMemsetNodeGetParams(void *, Fill *);
int cudaGraphMemsetNodeSetParams(void *, const Fill *);
int cudaGraphAddHostNode(void **, void *, const void *, size_t, const HostNode *);
int cudaGraphHostNodeGetParams(void *, HostNode *);
int cudaGraphAddEventRecordNode(void **, void *, const void *, size_t, void *);
int cudaGraphEventRecordNodeGetEvent(void *, void **);
int cudaGraphEventRecordNodeSetEvent(void *, void *);
int cudaGraphEventWaitNodeGetEvent(void *, void **);
int cudaGraphAddExternalSemaphoresSignalNode(void **, void *, const void *, size_t, const SemaphoreNode *);
int cudaGraphAddExternalSemaphoresWaitNode(void **, void *, const void *, size_t, const SemaphoreNode *);
int cudaGraphExternalSemaphoresSignalNodeGetParams(void *, SemaphoreNode *);
int cudaGraphExternalSemaphoresSignalNodeSetParams(void *, const SemaphoreNode *);
int cudaGraphExternalSemaphoresWaitNodeGetParams(void *, SemaphoreNode *);
int cudaGraphExecExternalSemaphoresSignalNodeSetParams(void *, void *, const SemaphoreNode *);
int cuGraphExternalSemaphoresWaitNodeSetParams(void *, const SemaphoreNode *);
int cuGraphAddBatchMemOpNode(void **, void *, const void *, size_t, const BatchNode *);
int cuGraphBatchMemOpNodeGetParams(void *, BatchNode *);
int cudaGraphGetId(void *, unsigned *);
int cudaGraphExecGetId(void *, unsigned *);
int cudaGraphNodeGetLocalId(void *, unsigned *);
int cudaGraphNodeGetToolsId(void *, unsigned long long *);
int cudaGraphNodeGetContainingGraph(void *, void **);
int cudaGraphNodeFindInClone(void **, void *, void *);
int cudaDeviceGetDevResource(int, void *, int);
int cudaDevSmResourceSplitByCount(void *, unsigned *, const void *, void *, unsigned, unsigned);
int cudaDevResourceGenerateDesc(void **, void *, unsigned);
int cudaGreenCtxCreate(void **, void *, int, unsigned);
int cudaDeviceGetExecutionCtx(void **, int);
int cudaExecutionCtxDestroy(void *);
int cudaExecutionCtxGetDevice(int *, void *);
int cudaExecutionCtxGetDevResource(void *, void *, int);
int cudaExecutionCtxGetId(void *, unsigned long long *);
int cudaExecutionCtxStreamCreate(void **, void *, unsigned, int);
int cudaExecutionCtxRecordEvent(void *, void *);
int cudaExecutionCtxWaitEvent(void *, void *);
int cudaExecutionCtxSynchronize(void *);
int cudaStreamGetDevResource(void *, void *, int);
int cuMemcpyBatchAsync(uint64_t *, uint64_t *, size_t *, size_t, void *, size_t *, size_t, size_t *, void *);
int cuMemcpyBatchAsync_v2(uint64_t *, uint64_t *, size_t *, size_t, void *, size_t *, size_t, void *);
int cudaMemcpyWithAttributesAsync(void *, const void *, size_t, void *, void *);
int cuMemDiscardBatchAsync(uint64_t *, size_t *, size_t, unsigned long long, void *);
int cuMemGetDefaultMemPool(void **, gpumem::cuda::MemoryLocation *, int);
int cuMemGetMemPool(void **, gpumem::cuda::MemoryLocation *, int);
int cuMemSetMemPool(gpumem::cuda::MemoryLocation *, int, void *);
}

namespace {

void textures() {
  void *array = nullptr;
  const Channels gray{8, 0, 0, 0, 1};
  CHECK(cudaMallocArray(&array, &gray, 256, 256, 0) == 0);
  struct {
    int type, padding;
    void *array;
    char rest[128];
  } resource = {0, 0, array, {}}, back;
  int how[26], how_back[26], view[28], view_back[28];  // CUDA_TEXTURE_DESC, CUDA_RESOURCE_VIEW_DESC: the longest there are
  for (int i = 0; i < 26; ++i) how[i] = 100 + i;
  for (int i = 0; i < 28; ++i) view[i] = i < 12 ? 200 + i : 0;
  unsigned long long plain = 0, viewed = 0, drivers = 0, surface = 0;
  CHECK(cudaCreateTextureObject(&plain, &resource, how, nullptr) == 0 && cudaCreateTextureObject_v2(&viewed, &resource, how, view) == 0);
  memset(&back, 0x5a, sizeof back);
  CHECK(cudaGetTextureObjectResourceDesc(&back, plain) == 0 && back.type == 0 && back.array == array && back.rest[127] == 0);
  memset(how_back, 0, sizeof how_back);
  CHECK(cudaGetTextureObjectTextureDesc(how_back, plain) == 0 && memcmp(how, how_back, 72) == 0 && how_back[18] == 0);
  CHECK(cudaGetTextureObjectTextureDesc_v2(how_back, viewed) == 0 && memcmp(how, how_back, 72) == 0);
  CHECK(cudaGetTextureObjectResourceViewDesc(view_back, viewed) == 0 && memcmp(view, view_back, sizeof view) == 0);
  CHECK(cudaGetTextureObjectResourceViewDesc(view_back, plain) == 1);  // it was made without one
  CHECK(cuTexObjectCreate(&drivers, &resource, how, view) == 0);
  CHECK(cuTexObjectGetTextureDesc(how_back, drivers) == 0 && memcmp(how, how_back, 104) == 0);
  CHECK(cuTexObjectGetResourceViewDesc(view_back, drivers) == 0 && memcmp(view, view_back, sizeof view) == 0);
  CHECK(cudaCreateSurfaceObject(&surface, &resource) == 0 && cudaGetSurfaceObjectResourceDesc(&back, surface) == 0 && back.array == array);
  CHECK(cudaGetTextureObjectTextureDesc(how_back, surface) == 1 && cudaGetTextureObjectTextureDesc(nullptr, plain) == 1);
  CHECK(cudaDestroyTextureObject(plain) == 0 && cudaDestroyTextureObject(viewed) == 0 && cuTexObjectDestroy(drivers) == 0 && cudaDestroySurfaceObject(surface) == 0);
  CHECK(cudaGetTextureObjectTextureDesc(how_back, plain) == 1 && cudaFreeArray(array) == 0);
}

void semaphore_nodes(void *graph) {
  void *semaphores[2] = {}, *node = nullptr, *waiting = nullptr, *exec = nullptr;
  for (void *&semaphore : semaphores) {
    SemaphoreHandle handle{};
    handle.type = 1;
    handle.handle.descriptor = open("/dev/null", O_RDWR);
    CHECK(cudaImportExternalSemaphore(&semaphore, &handle) == 0);
  }
  SemaphoreParameters parameters[2] = {};
  parameters[0].value = 7;
  parameters[1].value = 8;
  SemaphoreNode given{semaphores, parameters, 2}, told{}, wrong{semaphores, parameters, 0};
  CHECK(cudaGraphAddExternalSemaphoresSignalNode(&node, graph, nullptr, 0, &given) == 0);
  CHECK(cudaGraphAddExternalSemaphoresWaitNode(&waiting, graph, nullptr, 0, &given) == 0);
  CHECK(cudaGraphAddExternalSemaphoresSignalNode(&exec, graph, nullptr, 0, &wrong) == 1 && cudaGraphAddExternalSemaphoresSignalNode(&exec, graph, nullptr, 0, nullptr) == 1);
  parameters[0].value = 70;  // what the program does with its arrays afterwards is nobody's business
  int type = 0;
  CHECK(cudaGraphNodeGetType(node, &type) == 0 && type == 8 && cudaGraphNodeGetType(waiting, &type) == 0 && type == 9);
  CHECK(cudaGraphExternalSemaphoresSignalNodeGetParams(node, &told) == 0 && told.count == 2 && told.semaphores[1] == semaphores[1]);
  CHECK(told.parameters[0].value == 7 && told.parameters[1].value == 8 && told.parameters != parameters);
  given.count = 1;
  CHECK(cudaGraphExternalSemaphoresSignalNodeSetParams(node, &given) == 0 && cudaGraphExternalSemaphoresSignalNodeGetParams(node, &told) == 0);
  CHECK(told.count == 1 && told.parameters[0].value == 70);
  CHECK(cuGraphExternalSemaphoresWaitNodeSetParams(waiting, &given) == 0 && cudaGraphExternalSemaphoresWaitNodeGetParams(waiting, &told) == 0 && told.count == 1);
  CHECK(cudaGraphExternalSemaphoresWaitNodeGetParams(node, &told) == 1);  // it signals
  CHECK(cudaGraphInstantiateWithFlags(&exec, graph, 0) == 0 && cudaGraphExecExternalSemaphoresSignalNodeSetParams(exec, node, &given) == 0);
  void *gone = semaphores[0];
  CHECK(cudaDestroyExternalSemaphore(gone) == 0 && cudaGraphExecExternalSemaphoresSignalNodeSetParams(exec, node, &given) == 400);
  CHECK(cudaGraphLaunch(exec, nullptr) == 0 && cudaGraphExecDestroy(exec) == 0 && cudaDestroyExternalSemaphore(semaphores[1]) == 0);
}

void node_parameters() {
  void *graph = nullptr, *node = nullptr, *memory = nullptr, *event = nullptr, *other = nullptr, *told = nullptr;
  CHECK(cudaMalloc(&memory, 4096) == 0 && cudaGraphCreate(&graph, 0) == 0 && cudaEventCreate(&event) == 0 && cudaEventCreate(&other) == 0);
  int host[16] = {};
  Copy3D copy{}, copied{};
  CHECK(cudaGraphAddMemcpyNode1D(&node, graph, nullptr, 0, memory, host, sizeof host, 1) == 0 && cudaGraphMemcpyNodeGetParams(node, &copied) == 0);
  CHECK(copied.dstPtr.ptr == memory && copied.srcPtr.ptr == host && copied.extent.width == sizeof host && copied.extent.height == 1 && copied.kind == 1);
  copy.srcPtr.ptr = memory;
  copy.dstPtr.ptr = host;
  copy.extent = {64, 1, 1};
  copy.kind = 2;
  CHECK(cudaGraphMemcpyNodeSetParams(node, &copy) == 0 && cudaGraphMemcpyNodeGetParams(node, &copied) == 0 && memcmp(&copy, &copied, sizeof copy) == 0);
  CHECK(cudaGraphAddMemcpyNode(&node, graph, nullptr, 0, &copy) == 0 && cudaGraphMemcpyNodeGetParams(node, &copied) == 0 && copied.kind == 2);
  CHECK(cudaGraphAddMemcpyNode(&node, graph, nullptr, 0, nullptr) == 1);
  Fill fill{memory, 0, 9, 1, 64, 1}, filled{};
  CHECK(cudaGraphAddMemsetNode(&node, graph, nullptr, 0, &fill) == 0 && cudaGraphMemsetNodeGetParams(node, &filled) == 0);
  CHECK(filled.to == memory && filled.value == 9 && filled.width == 64);
  fill.value = 10;
  CHECK(cudaGraphMemsetNodeSetParams(node, &fill) == 0 && cudaGraphMemsetNodeGetParams(node, &filled) == 0 && filled.value == 10);
  CHECK(cudaGraphMemcpyNodeGetParams(node, &copied) == 1);  // it fills
  const HostNode function{[](void *) {}, host};
  HostNode called{};
  CHECK(cudaGraphAddHostNode(&node, graph, nullptr, 0, &function) == 0 && cudaGraphHostNodeGetParams(node, &called) == 0 && called.data == host && called.function == function.function);
  CHECK(cudaGraphAddEventRecordNode(&node, graph, nullptr, 0, event) == 0 && cudaGraphEventRecordNodeGetEvent(node, &told) == 0 && told == event);
  CHECK(cudaGraphEventRecordNodeSetEvent(node, other) == 0 && cudaGraphEventRecordNodeGetEvent(node, &told) == 0 && told == other);
  CHECK(cudaGraphEventWaitNodeGetEvent(node, &told) == 1);
  // The same by the generic call: type, three words, the type's own.
  struct {
    int type, reserved[3];
    Fill fill;
    char rest[192];
    long long last;
  } any{2, {}, fill, {}, 0};
  CHECK(cudaGraphAddNode_v2(&node, graph, nullptr, nullptr, 0, &any) == 0 && cudaGraphMemsetNodeGetParams(node, &filled) == 0 && filled.value == 10);
  BatchOperation operations[2] = {{2, reinterpret_cast<uint64_t>(memory), 5, {}}, {1, reinterpret_cast<uint64_t>(memory), 5, {}}};
  BatchNode batch{nullptr, 2, operations, 0}, again{};
  CHECK(cuGraphAddBatchMemOpNode(&node, graph, nullptr, 0, &batch) == 0);
  operations[0].value = 6;
  CHECK(cuGraphBatchMemOpNodeGetParams(node, &again) == 0 && again.count == 2 && again.operations[0].value == 5 && again.operations[1].operation == 1);
  semaphore_nodes(graph);
  CHECK(cudaGraphDestroy(graph) == 0 && cudaGraphMemsetNodeGetParams(node, &filled) != 0 && cudaFree(memory) == 0);
}

void node_names() {
  void *stream = nullptr, *memory = nullptr, *graph = nullptr, *clone = nullptr, *exec = nullptr, *nodes[3] = {}, *in_clone = nullptr, *containing = nullptr, *by_hand = nullptr;
  CHECK(cudaMalloc(&memory, 4096) == 0 && cudaStreamCreate(&stream) == 0 && cudaStreamBeginCapture(stream, 0) == 0);
  for (int n = 0; n < 3; ++n) CHECK(cudaMemsetAsync(memory, n, 64, stream) == 0);
  CHECK(cudaStreamEndCapture(stream, &graph) == 0);
  size_t count = 3;
  CHECK(cudaGraphGetNodes(graph, nodes, &count) == 0 && count == 3);
  unsigned graph_id = 0, clone_id = 0, exec_id = 0, local = 9;
  unsigned long long first = 0, second = 0;
  CHECK(cudaGraphClone(&clone, graph) == 0 && cudaGraphGetId(graph, &graph_id) == 0 && cudaGraphGetId(clone, &clone_id) == 0 && graph_id != clone_id);
  CHECK(cudaGraphInstantiateWithFlags(&exec, graph, 0) == 0 && cudaGraphExecGetId(exec, &exec_id) == 0 && exec_id != graph_id);
  CHECK(cudaGraphNodeGetLocalId(nodes[2], &local) == 0 && local == 2);
  CHECK(cudaGraphNodeGetToolsId(nodes[0], &first) == 0 && cudaGraphNodeGetToolsId(nodes[1], &second) == 0 && first != second);
  CHECK(cudaGraphNodeFindInClone(&in_clone, nodes[1], clone) == 0 && in_clone != nodes[1]);
  CHECK(cudaGraphNodeGetLocalId(in_clone, &local) == 0 && local == 1);
  CHECK(cudaGraphNodeFindInClone(&in_clone, nodes[1], graph) == 1);  // no clone
  const Fill fill{memory, 0, 9, 1, 64, 1};
  CHECK(cudaGraphAddMemsetNode(&by_hand, graph, nullptr, 0, &fill) == 0 && cudaGraphNodeGetContainingGraph(by_hand, &containing) == 0 && containing == graph);
  CHECK(cudaGraphNodeGetLocalId(by_hand, &local) == 0 && local == 3 && cudaGraphNodeGetToolsId(by_hand, &second) == 0 && second != first);
  CHECK(cudaGraphExecDestroy(exec) == 0 && cudaGraphDestroy(clone) == 0 && cudaGraphDestroy(graph) == 0 && cudaStreamDestroy(stream) == 0 && cudaFree(memory) == 0);
}

void execution() {
  char whole[144], part[144], rest[144], asked[144];
  unsigned groups = 1, count = 0;
  unsigned long long id = 0, primary_id = 0;
  int device = -1;
  void *description = nullptr, *green = nullptr, *primary = nullptr, *stream = nullptr, *event = nullptr;
  CHECK(cudaDeviceGetDevResource(0, whole, 1) == 0 && cudaDevSmResourceSplitByCount(part, &groups, whole, rest, 0, 8) == 0 && groups == 1);
  CHECK(cudaDevResourceGenerateDesc(&description, part, 1) == 0 && cudaGreenCtxCreate(&green, description, 0, 0) == 0);
  CHECK(cudaDeviceGetExecutionCtx(&primary, 0) == 0 && cudaExecutionCtxGetDevice(&device, green) == 0 && device == 0);
  CHECK(cudaExecutionCtxGetId(green, &id) == 0 && cudaExecutionCtxGetId(primary, &primary_id) == 0 && id != primary_id);
  CHECK(cudaExecutionCtxGetDevResource(green, asked, 1) == 0);
  memcpy(&count, asked + 96, sizeof count);
  CHECK(count == 8 && cudaExecutionCtxGetDevResource(primary, asked, 1) == 0 && memcmp(asked, whole, sizeof whole) == 0);
  CHECK(cudaEventCreate(&event) == 0);
  void *const both[] = {green, primary};
  for (void *context : both) {
    CHECK(cudaExecutionCtxStreamCreate(&stream, context, 1, 0) == 0 && cudaStreamGetDevResource(stream, asked, 1) == 0);
    CHECK(cudaExecutionCtxRecordEvent(context, event) == 0 && cudaExecutionCtxWaitEvent(context, event) == 0);
    CHECK(cudaExecutionCtxSynchronize(context) == 0 && cudaStreamDestroy(stream) == 0);
  }
  CHECK(cudaExecutionCtxDestroy(green) == 0 && cudaExecutionCtxDestroy(green) == 1 && cudaExecutionCtxDestroy(primary) == 1);
}

void batches() {
  void *memory = nullptr, *pool = nullptr, *current = nullptr;
  int value = 42, back[2] = {};
  CHECK(cudaMalloc(&memory, 4096) == 0);
  const uint64_t address = reinterpret_cast<uint64_t>(memory), from = reinterpret_cast<uint64_t>(&value);
  uint64_t to_device[2] = {address, address + 64}, from_host[2] = {from, from};
  size_t bytes[2] = {sizeof value, sizeof value}, failed = 9;
  CHECK(cuMemcpyBatchAsync(to_device, from_host, bytes, 2, nullptr, nullptr, 0, &failed, nullptr) == 0 && failed == 9);
  CHECK(cudaMemcpy(&back[0], memory, 4, 2) == 0 && cudaMemcpy(&back[1], reinterpret_cast<void *>(address + 64), 4, 2) == 0 && back[0] == 42 && back[1] == 42);
  to_device[1] = address + 4095;  // beyond
  CHECK(cuMemcpyBatchAsync(to_device, from_host, bytes, 2, nullptr, nullptr, 0, &failed, nullptr) != 0 && failed == 1);
  value = 43;
  CHECK(cuMemcpyBatchAsync_v2(to_device, from_host, bytes, 1, nullptr, nullptr, 0, nullptr) == 0 && cudaMemcpy(&back[0], memory, 4, 2) == 0 && back[0] == 43);
  value = 44;
  CHECK(cudaMemcpyWithAttributesAsync(memory, &value, sizeof value, nullptr, nullptr) == 0 && cudaMemcpy(&back[0], memory, 4, 2) == 0 && back[0] == 44);
  CHECK(cuMemDiscardBatchAsync(to_device, bytes, 1, 0, nullptr) == 0 && cudaMemcpy(&back[0], memory, 4, 2) == 0 && back[0] == 0);
  gpumem::cuda::MemoryLocation here{1, 0}, nowhere{1, 99};
  CHECK(cuMemGetDefaultMemPool(&pool, &here, 1) == 0 && cuMemGetMemPool(&current, &here, 1) == 0 && pool == current);
  CHECK(cuMemSetMemPool(&here, 1, pool) == 0 && cuMemGetMemPool(&current, &nowhere, 1) != 0);
  CHECK(cudaStreamSynchronize(nullptr) == 0 && cudaFree(memory) == 0);
}

constexpr Part kParts[] = {{"textures", textures}, {"node_parameters", node_parameters}, {"node_names", node_names}, {"execution", execution}, {"batches", batches}};

}  // namespace

int main(int count, char **words) { return run_part(kParts, count, words); }
