// SPDX-License-Identifier: Apache-2.0
// Parts of vgpu_program: streams, events, captures, contexts, kernels' code and the properties that libraries look at.

#include <dlfcn.h>
#include <unistd.h>

#include <initializer_list>

#include "tests/unit/programs/vgpu_program.h"

void streams() {
  void *stream, *other, *one, *two, *untimed, *graph;
  float ms = -1;
  CHECK(cudaStreamCreate(&stream) == 0 && cudaStreamCreate(&other) == 0);
  CHECK(cudaEventCreate(&one) == 0 && cudaEventCreate(&two) == 0 && cudaEventCreateWithFlags(&untimed, 2) == 0);
  CHECK(cudaEventElapsedTime(&ms, one, two) == 400);
  CHECK(cudaEventRecord(one, stream) == 0);
  CHECK(cudaLaunchKernel(kernel(), {1, 1, 1}, {32, 1, 1}, nullptr, 0, stream) == 0);
  CHECK(cudaEventRecord(two, stream) == 0 && cudaEventQuery(two) == 0);
  CHECK(cudaEventElapsedTime(&ms, one, two) == 0 && ms > 0 && ms < 10000);
  CHECK(cudaLaunchKernel(kernel(), {1, 1, 1}, {2048, 1, 1}, nullptr, 0, stream) == 9);
  CHECK(cudaLaunchKernel(kernel(), {1, 1, 1}, {32, 1, 1}, nullptr, 0, one) == 400);
  int ran = 0;
  CHECK(cudaLaunchHostFunc(stream, [](void *p) { *static_cast<int *>(p) = 1; }, &ran) == 0 && ran == 1);

  // A capture records nothing but how much there is; a stream that waits for it joins.
  int status = -1;
  CHECK(cudaStreamBeginCapture(nullptr, 0) == 900);
  CHECK(cudaStreamBeginCapture(stream, 0) == 0);
  CHECK(cudaLaunchKernel(kernel(), {1, 1, 1}, {32, 1, 1}, nullptr, 0, stream) == 0);
  CHECK(cudaEventRecord(untimed, stream) == 0 && cudaStreamWaitEvent(other, untimed, 0) == 0);
  CHECK(cudaStreamIsCapturing(other, &status) == 0 && status == 1);
  CHECK(cudaLaunchKernel(kernel(), {1, 1, 1}, {32, 1, 1}, nullptr, 0, other) == 0);
  CHECK(cudaStreamEndCapture(stream, &graph) == 0 && cudaStreamEndCapture(stream, &graph) == 903);
  CHECK(cudaStreamIsCapturing(other, &status) == 0 && status == 0);
  CHECK(cudaGetLastError() == 903);
  // Waiting for a capturing stream is not allowed and spoils the capture.
  CHECK(cudaStreamBeginCapture(stream, 0) == 0 && cudaStreamBeginCapture(stream, 0) == 1);
  CHECK(cudaStreamSynchronize(stream) == 900 && cudaStreamIsCapturing(stream, &status) == 0 && status == 2);
  CHECK(cudaStreamEndCapture(stream, &graph) == 901 && graph == nullptr && cudaStreamSynchronize(stream) == 0);
  CHECK(cudaStreamBeginCapture(stream, 0) == 0 && cudaStreamEndCapture(stream, &graph) == 0 && graph != nullptr);
}

// GPUMEM_CLOCK=lagging: work is done when somebody waited, when much was queued after it, or when asked for again and again.
void lagging() {
  void *stream, *other, *one, *two, *block;
  float ms;
  const auto work = [&](void *where) { CHECK(cudaLaunchKernel(kernel(), {1, 1, 1}, {32, 1, 1}, nullptr, 0, where) == 0); };
  CHECK(cudaStreamCreate(&stream) == 0 && cudaStreamCreate(&other) == 0 && cudaEventCreate(&one) == 0 && cudaEventCreate(&two) == 0);
  CHECK(cudaEventQuery(one) == 0 && cudaStreamQuery(stream) == 0);
  work(stream);
  CHECK(cudaEventRecord(one, stream) == 0 && cudaEventQuery(one) == 600 && cudaStreamQuery(stream) == 600 && cudaStreamQuery(other) == 0);
  work(stream);
  CHECK(cudaEventRecord(two, stream) == 0 && cudaEventElapsedTime(&ms, one, two) == 600);
  CHECK(cudaEventSynchronize(one) == 0 && cudaEventQuery(one) == 0 && cudaEventQuery(two) == 600);
  CHECK(cudaStreamSynchronize(stream) == 0 && cudaEventQuery(two) == 0 && cudaEventElapsedTime(&ms, one, two) == 0 && ms > 0);
  // What a stream waited for is done before it is.
  work(stream);
  CHECK(cudaEventRecord(one, stream) == 0 && cudaStreamWaitEvent(other, one, 0) == 0);
  work(other);
  CHECK(cudaEventQuery(one) == 600 && cudaStreamSynchronize(other) == 0 && cudaEventQuery(one) == 0);
  // Memory given back waits for all.
  CHECK(cudaMalloc(&block, kMiB) == 0);
  work(stream);
  CHECK(cudaStreamQuery(stream) == 600 && cudaFree(block) == 0 && cudaStreamQuery(stream) == 0);
  CHECK(cudaMallocAsync(&block, kMiB, stream) == 0);
  work(stream);
  CHECK(cudaFreeAsync(block, stream) == 0 && cudaStreamQuery(stream) == 600 && cudaDeviceSynchronize() == 0 && cudaStreamQuery(stream) == 0);
  // Nobody is further ahead than can be queued, and nobody asks in vain.
  work(stream);
  CHECK(cudaEventRecord(one, stream) == 0);
  for (int n = 0; n < 1000; ++n) work(stream);
  CHECK(cudaEventQuery(one) == 600);
  for (int n = 0; n < 100; ++n) work(stream);
  CHECK(cudaEventQuery(one) == 0);
  int asked = 0;
  while (cudaStreamQuery(stream) == 600) ++asked;
  CHECK(asked > 10 && asked < 1000);
  // A stream that is gone is done.
  work(stream);
  CHECK(cudaEventRecord(one, stream) == 0 && cudaEventQuery(one) == 600 && cudaStreamDestroy(stream) == 0 && cudaEventQuery(one) == 0);
}

void graphs() {
  void *stream, *graph, *exec;
  size_t nodes = 0;
  CHECK(cudaStreamCreate(&stream) == 0 && cudaStreamBeginCapture(stream, 0) == 0);
  for (int k = 0; k < 3; ++k) CHECK(cudaLaunchKernel(kernel(), {1, 1, 1}, {32, 1, 1}, nullptr, 0, stream) == 0);
  CHECK(cudaStreamEndCapture(stream, &graph) == 0);
  CHECK(cudaGraphGetNodes(graph, nullptr, &nodes) == 0 && nodes == 3);
  CHECK(cudaGraphInstantiateWithFlags(&exec, graph, 0) == 0 && cudaGraphLaunch(exec, stream) == 0);
  CHECK(cudaGraphLaunch(graph, stream) == 1);
  CHECK(cudaGraphExecDestroy(exec) == 0 && cudaGraphDestroy(graph) == 0 && cudaGraphDestroy(graph) == 1);
  CHECK(cudaStreamDestroy(stream) == 0 && cudaStreamDestroy(stream) == 400);
}

void contexts() {
  unsigned flags;
  int active = -1;
  void *context = &flags;
  CHECK(cuInit(0) == 0 && cuDevicePrimaryCtxGetState(0, &flags, &active) == 0 && active == 0);
  CHECK(cuCtxGetCurrent(&context) == 0 && context == nullptr);
  CHECK(cudaFree(nullptr) == 0);
  CHECK(cuDevicePrimaryCtxGetState(0, &flags, &active) == 0 && active == 1);
  void *primary;
  CHECK(cuCtxGetCurrent(&context) == 0 && cuDevicePrimaryCtxRetain(&primary, 0) == 0 && context == primary);
  CHECK(cuDevicePrimaryCtxGetState(1, &flags, &active) == 0 && active == 0);
  CHECK(cudaSetDevice(1) == 0);
  int device = -1, can = 0;
  CHECK(cudaGetDevice(&device) == 0 && device == 1 && cudaSetDevice(2) == 101);
  CHECK(cuCtxSetCurrent(primary) == 0 && cudaGetDevice(&device) == 0 && device == 0);
  CHECK(cudaDeviceCanAccessPeer(&can, 0, 1) == 0 && can == 1);
  CHECK(cudaDeviceEnablePeerAccess(1, 0) == 0 && cudaDeviceEnablePeerAccess(1, 0) == 704);
}

// cudaDeviceProp by generation: size and places of what torch reads, from device_properties.def.
namespace {

struct Place {
  int generation;
  const char *name;
  size_t offset;
};
constexpr Place kPlaces[] = {
#define SIZE(generation, bytes)
#define FIELD(generation, name, offset) {generation, #name, offset},
#include "estimator/cuda_interface/device_properties.def"
#undef SIZE
#undef FIELD
};
template <class T>
T read_field(const char *properties, int generation, const char *name) {
  for (const Place &place : kPlaces) {
    if (place.generation != generation || strcmp(place.name, name) != 0) continue;
    T value;
    memcpy(&value, properties + place.offset, sizeof value);
    return value;
  }
  fprintf(stderr, "no %s in CUDA %d\n", name, generation);
  exit(1);
}
}  // namespace

void properties() {
  const struct {
    const char *name, *version;
    int generation;
    size_t size;
  } kinds[] = {{"cudaGetDeviceProperties", "libcudart.so.11.0", 11, 728}, {"cudaGetDeviceProperties", "libcudart.so.12", 11, 728},
               {"cudaGetDeviceProperties_v2", nullptr, 12, 1032}, {"cudaGetDeviceProperties", "libcudart.so.13", 13, 1008}};
  for (const auto &kind : kinds) {
    char buffer[1200];
    memset(buffer, 0x5a, sizeof buffer);
    void *get = kind.version != nullptr ? dlvsym(RTLD_DEFAULT, kind.name, kind.version) : dlsym(RTLD_DEFAULT, kind.name);
    CHECK(get != nullptr);
    CHECK(reinterpret_cast<int (*)(void *, int)>(get)(buffer, 0) == 0);
    CHECK(strcmp(buffer, "NVIDIA Test") == 0);
    CHECK(read_field<size_t>(buffer, kind.generation, "totalGlobalMem") == 200 * kMiB);
    CHECK(read_field<int>(buffer, kind.generation, "major") == 8 && read_field<int>(buffer, kind.generation, "minor") == 6);
    CHECK(read_field<int>(buffer, kind.generation, "multiProcessorCount") == 28);
    CHECK(read_field<int>(buffer, kind.generation, "warpSize") == 32);
    CHECK(read_field<int>(buffer, kind.generation, "maxThreadsPerMultiProcessor") == 1536);
    CHECK(read_field<size_t>(buffer, kind.generation, "sharedMemPerBlockOptin") == 101376);
    if (kind.generation != 13) CHECK(read_field<int>(buffer, kind.generation, "clockRate") == 1777000);
    for (size_t i = kind.size; i < sizeof buffer; ++i) CHECK(buffer[i] == 0x5a);  // not a byte past its end
  }
  char attributes[200];
  memset(attributes, 0x5a, sizeof attributes);
  auto get = reinterpret_cast<int (*)(void *, const void *)>(dlvsym(RTLD_DEFAULT, "cudaFuncGetAttributes", "libcudart.so.11.0"));
  CHECK(get(attributes, kernel()) == 0);
  for (size_t i = 56; i < sizeof attributes; ++i) CHECK(attributes[i] == 0x5a);
}

// A fat binary with code for sm_80 and sm_86 and PTX for 90: which of it a device would run.
void code() {
  struct {
    uint32_t magic = 0xba55ed50;
    uint16_t version = 1, header = 16;
    uint64_t bytes;
    struct Entry {
      uint16_t kind, version = 1;
      uint32_t header = 64;
      uint64_t bytes = 0;
      uint32_t compressed = 0, unknown = 0;
      uint16_t minor = 0, major = 0;
      uint32_t arch;
      char rest[32] = {};
    } entries[4];
  } fat;
  fat.bytes = sizeof fat.entries;
  const uint16_t kinds[] = {2, 2, 2, 1};
  const uint32_t archs[] = {75, 80, 86, 70};
  for (int e = 0; e < 4; ++e) fat.entries[e].kind = kinds[e], fat.entries[e].arch = archs[e];
  struct {
    uint32_t magic = 0x466243b1, version = 1;
    const void *data;
    void *file = nullptr;
  } wrapper;
  wrapper.data = &fat;
  static char host_function[16], host_variable[16];
  void **module = __cudaRegisterFatBinary(&wrapper);
  __cudaRegisterFunction(module, host_function, host_function, "kernel", -1, nullptr, nullptr, nullptr, nullptr, nullptr);
  gpumem::cuda::FunctionAttributes12 attributes;
  CHECK(cudaSetDevice(0) == 0 && cudaFuncGetAttributes(&attributes, host_function) == 0);
  CHECK(attributes.binaryVersion == 86 && attributes.ptxVersion == 86 && attributes.maxThreadsPerBlock == 1024);
  __cudaRegisterVar(module, host_variable, host_variable, "variable", 0, 16, 0, 0);
  void *address;
  CHECK(cudaGetSymbolAddress(&address, host_variable) == 0 && address != nullptr);
  CHECK(cudaGetSymbolAddress(&address, host_function) == 13);
  Dim3 grid, block;
  size_t shared;
  void *stream;
  CHECK(__cudaPushCallConfiguration({1, 2, 3}, {4, 5, 6}, 7, nullptr) == 0);
  CHECK(__cudaPopCallConfiguration(&grid, &block, &shared, &stream) == 0 && grid.y == 2 && block.z == 6 && shared == 7);
  CHECK(__cudaPopCallConfiguration(&grid, &block, &shared, &stream) == 52);
  void *loaded, *function;
  CHECK(cuModuleLoadData(&loaded, &fat) == 0 && cuModuleGetFunction(&function, loaded, "k") == 0);
  CHECK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr) == 0);
  // The same in a file; one that is cut short says nothing, and nothing beyond its end is read.
  char path[] = "/tmp/gpumem-code.XXXXXX";
  const int file = mkstemp(path);
  fat.entries[2].arch = 89;
  for (const size_t bytes : {sizeof fat, sizeof fat - 8, size_t{5}}) {
    int version = 0;
    CHECK(file >= 0 && ftruncate(file, 0) == 0 && pwrite(file, &fat, bytes, 0) == static_cast<ssize_t>(bytes));
    CHECK(cuModuleLoad(&loaded, path) == 0 && cuModuleGetFunction(&function, loaded, "k") == 0);
    CHECK(cuFuncGetAttribute(&version, 6, function) == 0 && version == (bytes == sizeof fat ? 80 : 86) && cuModuleUnload(loaded) == 0);
  }
  CHECK(ftruncate(file, 0) == 0 && cuModuleLoad(&loaded, path) == 301 && unlink(path) == 0 && cuModuleLoad(&loaded, path) == 301 && close(file) == 0);
}
