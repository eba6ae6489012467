// SPDX-License-Identifier: Apache-2.0
// A CUDA program in small parts, one a word on its command line, for virtual_gpu_test. Linked like an nvcc program:
// against the runtime's names. Exit status 0: all was as in CUDA; else the failing line is on standard error.

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "estimator/cuda_interface/types.h"

using gpumem::cuda::Dim3;
using gpumem::cuda::PhysicalProperties;

extern "C" {
int cudaGetDeviceCount(int *);
int cudaSetDevice(int);
int cudaGetDevice(int *);
int cudaMalloc(void **, size_t);
int cudaMallocAsync(void **, size_t, void *);
int cudaFreeAsync(void *, void *);
int cudaMallocManaged(void **, size_t, unsigned);
int cudaFree(void *);
int cudaHostAlloc(void **, size_t, unsigned);
int cudaFreeHost(void *);
int cudaHostRegister(void *, size_t, unsigned);
int cudaHostUnregister(void *);
int cudaMemGetInfo(size_t *, size_t *);
int cudaMemcpy(void *, const void *, size_t, int);
int cudaMemcpyAsync(void *, const void *, size_t, int, void *);
int cudaMemcpy2D(void *, size_t, const void *, size_t, size_t, size_t, int);
int cudaMemset(void *, int, size_t);
int cudaGetLastError();
int cudaPeekAtLastError();
const char *cudaGetErrorString(int);
const char *cudaGetErrorName(int);
int cudaPointerGetAttributes(gpumem::cuda::PointerAttributes *, const void *);
int cudaStreamCreate(void **);
int cudaStreamDestroy(void *);
int cudaStreamSynchronize(void *);
int cudaStreamQuery(void *);
int cudaEventSynchronize(void *);
int cudaStreamBeginCapture(void *, int);
int cudaStreamEndCapture(void *, void **);
int cudaStreamIsCapturing(void *, int *);
int cudaStreamWaitEvent(void *, void *, unsigned);
int cudaGraphInstantiateWithFlags(void **, void *, unsigned long long);
int cudaGraphLaunch(void *, void *);
int cudaGraphGetNodes(void *, void **, size_t *);
int cudaGraphExecDestroy(void *);
int cudaGraphDestroy(void *);
int cudaGraphicsGLRegisterBuffer();
int cudaEventCreate(void **);
int cudaEventCreateWithFlags(void **, unsigned);
int cudaEventRecord(void *, void *);
int cudaEventQuery(void *);
int cudaEventElapsedTime(float *, void *, void *);
int cudaEventDestroy(void *);
int cudaLaunchKernel(const void *, Dim3, Dim3, void **, size_t, void *);
unsigned __cudaPushCallConfiguration(Dim3, Dim3, size_t, void *);
int __cudaPopCallConfiguration(Dim3 *, Dim3 *, size_t *, void *);
void **__cudaRegisterFatBinary(void *);
void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, void *, void *, int *);
void __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int);
int cudaGetSymbolAddress(void **, const void *);
int cudaFuncGetAttributes(gpumem::cuda::FunctionAttributes12 *, const void *);
int cudaLaunchHostFunc(void *, void (*)(void *), void *);
int cudaDeviceSynchronize();
int cudaDeviceGetDefaultMemPool(void **, int);
int cudaMemPoolGetAttribute(void *, int, void *);
int cudaMemPoolSetAttribute(void *, int, void *);
int cudaDeviceCanAccessPeer(int *, int, int);
int cudaDeviceEnablePeerAccess(int, unsigned);
int cudaGetDriverEntryPointByVersion(const char *, void **, unsigned, unsigned long long, int *);
int cuInit(unsigned);
int cuCtxGetCurrent(void **);
int cuDevicePrimaryCtxRetain(void **, int);
int cuDevicePrimaryCtxGetState(int, unsigned *, int *);
int cuCtxSetCurrent(void *);
int cuMemAlloc_v2(uint64_t *, size_t);
int cuMemFree_v2(uint64_t);
int cuMemAddressReserve(uint64_t *, size_t, size_t, uint64_t, unsigned long long);
int cuMemAddressFree(uint64_t, size_t);
int cuMemCreate(uint64_t *, size_t, const PhysicalProperties *, unsigned long long);
int cuMemRelease(uint64_t);
int cuMemMap(uint64_t, size_t, size_t, uint64_t, unsigned long long);
int cuMemUnmap(uint64_t, size_t);
int cuMemSetAccess(uint64_t, size_t, const void *, size_t);
int cuMemExportToShareableHandle(void *, uint64_t, int, unsigned long long);
int cuMemImportFromShareableHandle(uint64_t *, void *, int);
int cudaIpcGetMemHandle(gpumem::cuda::IpcHandle *, void *);
int cudaIpcOpenMemHandle(void **, gpumem::cuda::IpcHandle, unsigned);
int cudaIpcCloseMemHandle(void *);
int cuGetProcAddress_v2(const char *, void **, int, unsigned long long, int *);
int cuGetExportTable(const void **, const void *);
int cuModuleLoadData(void **, const void *);
int cuModuleGetFunction(void **, void *, const char *);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
}

#define CHECK(condition)                                                                                  \
  do {                                                                                                    \
    if (!(condition)) {                                                                                   \
      fprintf(stderr, "%s:%d: %s is false (last error %d)\n", __FILE__, __LINE__, #condition, cudaPeekAtLastError()); \
      exit(1);                                                                                            \
    }                                                                                                     \
  } while (0)

namespace {

constexpr size_t kMiB = 1 << 20;
constexpr int kOutOfMemory = 2, kHostToDevice = 1, kDeviceToHost = 2, kDeviceToDevice = 3;

size_t free_bytes() {
  size_t free_now = 0, total = 0;
  CHECK(cudaMemGetInfo(&free_now, &total) == 0);
  return free_now;
}

const void *kernel() { return reinterpret_cast<const void *>(&free_bytes); }

void launch() { CHECK(cudaLaunchKernel(kernel(), {1, 1, 1}, {32, 1, 1}, nullptr, 0, nullptr) == 0); }

void no_device() {
  int count = 7;
  CHECK(cudaGetDeviceCount(&count) == 100 && count == 0);
  void *p;
  CHECK(cudaMalloc(&p, 1) == 100);
  CHECK(cudaGetLastError() == 100);
  CHECK(cuInit(0) == 100);
}

void out_of_memory() {
  const size_t all = free_bytes();
  CHECK(all % (2 * kMiB) == 0);
  void *most, *p = &most;
  CHECK(cudaMalloc(&most, all - 2 * kMiB) == 0);
  CHECK(free_bytes() == 2 * kMiB);
  CHECK(cudaMalloc(&p, 2 * kMiB + 1) == kOutOfMemory && p == nullptr);
  CHECK(cudaPeekAtLastError() == kOutOfMemory);
  CHECK(cudaGetLastError() == kOutOfMemory && cudaGetLastError() == 0);
  CHECK(strcmp(cudaGetErrorString(kOutOfMemory), "out of memory") == 0);
  CHECK(strcmp(cudaGetErrorName(kOutOfMemory), "cudaErrorMemoryAllocation") == 0);
  CHECK(cudaMalloc(&p, 2 * kMiB) == 0);
  CHECK(free_bytes() == 0);
  CHECK(cudaFree(most) == 0 && cudaFree(p) == 0 && cudaFree(nullptr) == 0);
  CHECK(cudaFree(p) == 1);
  CHECK(free_bytes() == all);
  CHECK(cudaMalloc(&p, 0) == 0 && p == nullptr);
}

void small() {
  const size_t before = free_bytes();
  void *a, *b, *c;
  CHECK(cudaMalloc(&a, 1) == 0 && cudaMalloc(&b, 100000) == 0 && cudaMalloc(&c, kMiB - 1) == 0);
  CHECK(before - free_bytes() == 2 * kMiB);
  CHECK(reinterpret_cast<uintptr_t>(a) % 256 == 0 && reinterpret_cast<uintptr_t>(b) % 256 == 0);
  char byte = 'x';
  CHECK(cudaMemcpy(a, &byte, 1, kHostToDevice) == 0);
  CHECK(cudaFree(static_cast<char *>(b) + 512) == 1);
  CHECK(cudaFree(a) == 0);
  CHECK(cudaMalloc(&a, 1) == 0);  // the same place, and it reads as zero
  CHECK(cudaMemcpy(&byte, a, 1, kDeviceToHost) == 0 && byte == 0);
  CHECK(cudaFree(a) == 0 && cudaFree(b) == 0 && cudaFree(c) == 0);
  CHECK(free_bytes() == before);
}

void contents() {
  constexpr size_t kLarge = 5 * kMiB + 12345;
  unsigned char *host = static_cast<unsigned char *>(malloc(kLarge)), *back = static_cast<unsigned char *>(malloc(kLarge));
  for (size_t i = 0; i < kLarge; ++i) host[i] = static_cast<unsigned char>(i * 31 + i / 4096);
  char *device, *other;
  CHECK(cudaMalloc(reinterpret_cast<void **>(&device), kLarge) == 0 && cudaMalloc(reinterpret_cast<void **>(&other), kLarge) == 0);

  // New memory reads as zero, and a copy to the host writes all of its destination.
  memset(back, 0xff, kLarge);
  CHECK(cudaMemcpy(back, device, kLarge, kDeviceToHost) == 0);
  for (size_t i = 0; i < kLarge; ++i) CHECK(back[i] == 0);

  // Small contents are real, through device to device too.
  CHECK(cudaMemcpy(device + 100, host, 1000, kHostToDevice) == 0);
  CHECK(cudaMemcpy(other + 7, device + 100, 1000, kDeviceToDevice) == 0);
  CHECK(cudaMemcpy(back, other + 7, 1000, kDeviceToHost) == 0 && memcmp(back, host, 1000) == 0);
  CHECK(cudaMemcpy(back, device + 150, 20, kDeviceToHost) == 0 && memcmp(back, host + 50, 20) == 0);

  // A large round trip keeps its values, in parts too, until the source changes.
  CHECK(cudaMemcpy(device, host, kLarge, kHostToDevice) == 0);
  memset(back, 0xff, kLarge);
  CHECK(cudaMemcpy(back, device, kLarge, kDeviceToHost) == 0 && memcmp(back, host, kLarge) == 0);
  CHECK(cudaMemcpy(back, device + 4 * kMiB, 100, kDeviceToHost) == 0 && memcmp(back, host + 4 * kMiB, 100) == 0);
  memset(host, 0x55, kLarge);
  memset(back, 0xff, kLarge);
  CHECK(cudaMemcpy(back, device, kLarge, kDeviceToHost) == 0);
  for (size_t i = 0; i < kLarge; ++i) CHECK(back[i] == 0);

  // Fills, small and large; an overwritten one is gone.
  CHECK(cudaMemset(device, 7, kLarge) == 0);
  CHECK(cudaMemcpy(back, device, kLarge, kDeviceToHost) == 0 && back[0] == 7 && back[kLarge - 1] == 7);
  CHECK(cudaMemset(device, 9, 16) == 0 && cudaMemcpy(back, device, 16, kDeviceToHost) == 0 && back[15] == 9);

  // Rows
  CHECK(cudaMemcpy2D(device, 512, host, 100, 100, 8, kHostToDevice) == 0);
  CHECK(cudaMemcpy2D(back, 100, device, 512, 100, 8, kDeviceToHost) == 0 && memcmp(back, host, 800) == 0);
  CHECK(cudaMemcpy2D(back, 50, device, 512, 100, 8, kDeviceToHost) != 0);
  CHECK(cudaMemcpy(back, device, 1, 9) == 21);
  CHECK(cudaGetLastError() == 21);
}

// What a kernel would have written is never read as what lay there before.
void stale() {
  char *device, host[64], back[64];
  CHECK(cudaMalloc(reinterpret_cast<void **>(&device), 1000) == 0);
  memset(host, 0x77, sizeof host);
  CHECK(cudaMemcpy(device, host, 64, kHostToDevice) == 0);
  launch();
  CHECK(cudaMemcpy(back, device, 64, kDeviceToHost) == 0 && memcmp(back, host, 64) == 0);  // what was sent comes back
  CHECK(cudaMemcpy(back, device, 4, kDeviceToHost) == 0 && back[0] == 0);                   // a part of it may be something else's
}

void pointers() {
  void *device, *pinned, *managed, *plain = malloc(10000);
  gpumem::cuda::PointerAttributes a;
  CHECK(cudaMalloc(&device, 100) == 0 && cudaHostAlloc(&pinned, 100, 0) == 0 && cudaMallocManaged(&managed, 100, 1) == 0);
  CHECK(cudaPointerGetAttributes(&a, static_cast<char *>(device) + 50) == 0 && a.type == 2 && a.device == 0 && a.hostPointer == nullptr);
  CHECK(cudaPointerGetAttributes(&a, pinned) == 0 && a.type == 1 && a.hostPointer == pinned);
  CHECK(cudaPointerGetAttributes(&a, managed) == 0 && a.type == 3);
  CHECK(cudaPointerGetAttributes(&a, plain) == 0 && a.type == 0 && a.devicePointer == nullptr);
  CHECK(cudaHostRegister(plain, 10000, 0) == 0 && cudaHostRegister(plain, 10000, 0) == 712);
  CHECK(cudaPointerGetAttributes(&a, plain) == 0 && a.type == 1);
  CHECK(cudaHostUnregister(plain) == 0 && cudaHostUnregister(plain) == 713);
  CHECK(cudaFreeHost(pinned) == 0 && cudaFree(managed) == 0 && cudaFree(device) == 0);
  CHECK(cudaPointerGetAttributes(&a, device) == 0 && a.type == 0);
}

void virtual_memory() {
  const size_t before = free_bytes();
  uint64_t address, handles[3];
  PhysicalProperties properties = {};
  properties.type = 1;
  properties.location = {1, 0};
  properties.requestedHandleTypes = 1;
  CHECK(cuMemAddressReserve(&address, 20 * kMiB, 0, 0, 0) == 0);
  CHECK(free_bytes() == before);
  CHECK(cuMemCreate(&handles[0], 3 * kMiB, &properties, 0) == 1);
  for (uint64_t &handle : handles) CHECK(cuMemCreate(&handle, 4 * kMiB, &properties, 0) == 0);
  CHECK(before - free_bytes() == 12 * kMiB);
  uint64_t too_much;
  CHECK(cuMemCreate(&too_much, before, &properties, 0) == kOutOfMemory);
  CHECK(cuMemMap(address, 4 * kMiB, 0, handles[0], 0) == 0 && cuMemMap(address + 4 * kMiB, 4 * kMiB, 0, handles[1], 0) == 0);
  CHECK(cuMemMap(address, 4 * kMiB, 0, handles[2], 0) == 1);
  CHECK(cuMemSetAccess(address, 8 * kMiB, nullptr, 0) == 0);
  char text[] = "real", back[8];
  CHECK(cudaMemcpy(reinterpret_cast<void *>(address + 4 * kMiB - 2), text, 5, kHostToDevice) == 0);
  CHECK(cudaMemcpy(back, reinterpret_cast<void *>(address + 4 * kMiB - 2), 5, kDeviceToHost) == 0 && strcmp(back, text) == 0);
  int fd = -1;
  CHECK(cuMemExportToShareableHandle(&fd, handles[0], 1, 0) == 0 && fd >= 0);
  CHECK(cuMemRelease(handles[0]) == 0);
  CHECK(before - free_bytes() == 12 * kMiB);  // still mapped
  CHECK(cuMemAddressFree(address, 20 * kMiB) == 1);
  CHECK(cuMemUnmap(address, 8 * kMiB) == 0);
  CHECK(before - free_bytes() == 8 * kMiB);   // the first is gone, the others have their handles
  CHECK(cuMemRelease(handles[1]) == 0 && cuMemRelease(handles[2]) == 0 && cuMemRelease(handles[2]) == 1);
  CHECK(free_bytes() == before);
  CHECK(cuMemAddressFree(address, 20 * kMiB) == 0);
}

// Two processes: each sees what the other writes, and only the owner pays. The child begins before CUDA is used.
void shared_memory() {
  int down[2], up[2];
  CHECK(pipe(down) == 0 && pipe(up) == 0);
  gpumem::cuda::IpcHandle handle;
  char text[64];
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    void *seen = nullptr;
    CHECK(close(down[1]) == 0 && close(up[0]) == 0 && read(down[0], &handle, sizeof handle) == sizeof handle);
    const size_t before = free_bytes();
    CHECK(cudaIpcOpenMemHandle(&seen, handle, 1) == 0);
    CHECK(cudaMemcpy(text, seen, 64, kDeviceToHost) == 0 && strcmp(text, "from the owner") == 0);
    CHECK(cudaMemcpy(static_cast<char *>(seen) + kMiB, "from the other", 15, kHostToDevice) == 0);
    CHECK(free_bytes() == before);
    CHECK(write(up[1], "1", 1) == 1 && read(down[0], text, 1) == 1);  // the owner has seen it, cleared the whole, and freed it
    CHECK(cudaMemcpy(text, seen, 64, kDeviceToHost) == 0 && text[0] == 0);
    CHECK(cudaIpcCloseMemHandle(seen) == 0 && cudaIpcCloseMemHandle(seen) == 1);
    CHECK(cudaIpcOpenMemHandle(&seen, handle, 1) == 1);  // gone
    // The same through physical memory, by its descriptor.
    int fd;
    CHECK(read(down[0], &fd, sizeof fd) == sizeof fd);
    const size_t then = free_bytes();
    snprintf(text, sizeof text, "/proc/%d/fd/%d", getppid(), fd);
    const int opened = open(text, O_RDWR);
    uint64_t memory, address;
    CHECK(cuMemImportFromShareableHandle(&memory, reinterpret_cast<void *>(static_cast<intptr_t>(opened)), 1) == 0);
    CHECK(cuMemAddressReserve(&address, 4 * kMiB, 0, 0, 0) == 0 && cuMemMap(address, 4 * kMiB, 0, memory, 0) == 0);
    CHECK(cudaMemcpy(text, reinterpret_cast<void *>(address), 9, kDeviceToHost) == 0 && strcmp(text, "physical") == 0);
    CHECK(free_bytes() == then);
    CHECK(cuMemUnmap(address, 4 * kMiB) == 0 && cuMemRelease(memory) == 0);
    _exit(0);
  }
  CHECK(close(down[0]) == 0 && close(up[1]) == 0);
  char *mine, *other;
  CHECK(cudaMalloc(reinterpret_cast<void **>(&other), 1000) == 0 && cudaMalloc(reinterpret_cast<void **>(&mine), 3 * kMiB) == 0);
  memset(text, 0, sizeof text);
  strcpy(text, "from the owner");
  CHECK(cudaMemcpy(mine, text, 64, kHostToDevice) == 0);
  CHECK(cudaIpcGetMemHandle(&handle, mine) == 0 && cudaIpcGetMemHandle(&handle, mine) == 0);
  void *again;
  CHECK(cudaIpcOpenMemHandle(&again, handle, 1) == 1);  // not in the process that made it
  CHECK(cudaMemcpy(text, mine, 64, kDeviceToHost) == 0 && strcmp(text, "from the owner") == 0);
  CHECK(write(down[1], &handle, sizeof handle) == sizeof handle && read(up[0], text, 1) == 1);
  CHECK(cudaMemcpy(text, mine + kMiB, 15, kDeviceToHost) == 0 && strcmp(text, "from the other") == 0);
  CHECK(cudaMemset(mine, 0, 3 * kMiB) == 0 && cudaFree(mine) == 0 && cudaFree(other) == 0);
  CHECK(write(down[1], "1", 1) == 1);

  uint64_t address, twice, memory;
  PhysicalProperties properties = {};
  properties.type = 1;
  properties.location = {1, 0};
  properties.requestedHandleTypes = 1;
  CHECK(cuMemAddressReserve(&address, 4 * kMiB, 0, 0, 0) == 0 && cuMemCreate(&memory, 4 * kMiB, &properties, 0) == 0);
  CHECK(cuMemMap(address, 4 * kMiB, 0, memory, 0) == 0 && cuMemSetAccess(address, 4 * kMiB, nullptr, 0) == 0);
  CHECK(cudaMemcpy(reinterpret_cast<void *>(address), "physical", 9, kHostToDevice) == 0);
  int fd = -1;
  CHECK(cuMemExportToShareableHandle(&fd, memory, 1, 0) == 0);
  // Mapped twice, it has the same bytes in both places.
  CHECK(cuMemAddressReserve(&twice, 4 * kMiB, 0, 0, 0) == 0 && cuMemMap(twice, 4 * kMiB, 0, memory, 0) == 0);
  CHECK(cudaMemcpy(text, reinterpret_cast<void *>(twice), 9, kDeviceToHost) == 0 && strcmp(text, "physical") == 0);
  CHECK(write(down[1], &fd, sizeof fd) == sizeof fd);
  int status = 1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(cuMemUnmap(address, 4 * kMiB) == 0 && cuMemUnmap(twice, 4 * kMiB) == 0 && cuMemRelease(memory) == 0 && close(fd) == 0);
}

// The real runtime by its handle: the virtual GPU's functions, in the generation that the library's name says.
void by_handle(const char *path, const char *generation) {
  void *self = dlopen("libgpumem_vgpu.so", RTLD_LAZY | RTLD_NOLOAD), *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  CHECK(self != nullptr && library != nullptr);
  CHECK(dlsym(library, "cudaGetDeviceProperties") == dlvsym(self, "cudaGetDeviceProperties", generation));
  CHECK(dlsym(library, "cudaMalloc") == dlsym(self, "cudaMalloc"));
  CHECK(dlsym(library, "cudaNoSuchThing") == nullptr && dlerror() != nullptr);
  CHECK(reinterpret_cast<int (*)()>(dlsym(library, "fake_only"))() == 41);
  CHECK(dlsym(RTLD_DEFAULT, "cudaGetDeviceProperties") == dlvsym(self, "cudaGetDeviceProperties", generation));
  CHECK(dlsym(RTLD_NEXT, "fake_only") == nullptr);
  int count = 0;
  CHECK(reinterpret_cast<int (*)(int *)>(dlsym(library, "cudaGetDeviceCount"))(&count) == 0 && count == 2);
}

void pools() {
  const size_t before = free_bytes();
  void *stream, *pool, *a, *b;
  uint64_t reserved = 1, used = 1;
  CHECK(cudaStreamCreate(&stream) == 0 && cudaDeviceGetDefaultMemPool(&pool, 0) == 0);
  CHECK(cudaMallocAsync(&a, 10 * kMiB, stream) == 0 && cudaMallocAsync(&b, 1000, stream) == 0);
  CHECK(cudaMemPoolGetAttribute(pool, 7, &used) == 0 && used == 10 * kMiB + 1024);
  CHECK(cudaMemPoolGetAttribute(pool, 5, &reserved) == 0 && before - free_bytes() == reserved);
  CHECK(cudaFreeAsync(a, stream) == 0 && cudaFree(b) == 0);
  CHECK(cudaStreamSynchronize(stream) == 0);  // the release threshold is 0
  CHECK(free_bytes() == before);
  uint64_t keep = ~0ull;
  CHECK(cudaMemPoolSetAttribute(pool, 4, &keep) == 0);
  CHECK(cudaMallocAsync(&a, 10 * kMiB, stream) == 0 && cudaFreeAsync(a, stream) == 0 && cudaStreamSynchronize(stream) == 0);
  CHECK(free_bytes() < before);
  CHECK(cudaMallocAsync(&b, before, stream) == 0);  // what pools keep is given up for a request that needs it
  CHECK(cudaMallocAsync(&a, 1, stream) == kOutOfMemory);
}

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

// Only looks: must charge nothing.
void look() {
  int count = 0;
  CHECK(cudaGetDeviceCount(&count) == 0);
  void *get = dlsym(RTLD_DEFAULT, "cudaDeviceGetAttribute");
  for (int d = 0; d < count; ++d) {
    int value;
    CHECK(reinterpret_cast<int (*)(int *, int, int)>(get)(&value, 16, d) == 0 && value > 0);
  }
  auto uuid = reinterpret_cast<int (*)(unsigned char *, int)>(dlsym(RTLD_DEFAULT, "cuDeviceGetUuid"));
  for (int d = 0; d < count; ++d) {
    unsigned char bytes[16];
    CHECK(uuid(bytes, d) == 0);
    printf("%s%d", d == 0 ? "" : " ", bytes[15]);
  }
  printf("\n");
}

// cudaDeviceProp by generation: size and places of what torch reads, from device_properties.def.
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
}

void missing() {
  CHECK(cudaGraphicsGLRegisterBuffer() == 801);
  CHECK(cudaGraphicsGLRegisterBuffer() == 801);
  const void *table = &table;
  CHECK(cuGetExportTable(&table, "0123456789abcdef") != 0 && table == nullptr);
}

void entry_points() {
  void *function = nullptr, *old = nullptr;
  int status = -1;
  CHECK(cuGetProcAddress_v2("cuMemAlloc", &function, 12000, 0, &status) == 0 && status == 0);
  CHECK(function == reinterpret_cast<void *>(&cuMemAlloc_v2));
  CHECK(cuGetProcAddress_v2("cuMemAlloc", &old, 2000, 0, &status) == 0 && old != function);
  CHECK(cuGetProcAddress_v2("cuNoSuchThing", &function, 12000, 0, &status) == 500 && status == 1 && function == nullptr);
  CHECK(cuGetProcAddress_v2("cuCtxGetDevice_v2", &function, 12000, 0, &status) == 500 && status == 1);
  CHECK(cudaGetDriverEntryPointByVersion("cuMemCreate", &function, 12000, 0, &status) == 0 && status == 0);
  CHECK(cudaGetDriverEntryPointByVersion("cuMemCreate", &function, 9000, 0, &status) == 0 && status == 2 && function == nullptr);
  CHECK(cudaGetDriverEntryPointByVersion("cuNoSuchThing", &function, 12000, 0, &status) == 0 && status == 1);
  // By the name of the driver's library, as Triton and cuda.bindings look.
  void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
  CHECK(driver != nullptr && dlsym(driver, "cuMemAlloc_v2") == reinterpret_cast<void *>(&cuMemAlloc_v2));
  void *nvml = dlopen("libnvidia-ml.so.1", RTLD_LAZY);
  CHECK(nvml != nullptr && dlsym(nvml, "nvmlInit_v2") != nullptr);
}

void forks() {
  void *p;
  if (fork() == 0) {  // the parent has not used CUDA: the child may
    CHECK(cudaMalloc(&p, kMiB) == 0);
    _exit(0);
  }
  int status = 1;
  wait(&status);
  CHECK(status == 0);
  CHECK(cudaMalloc(&p, 4 * kMiB) == 0);
  if (fork() == 0) {
    CHECK(cudaMalloc(&p, kMiB) == 3);
    int count;
    CHECK(cudaGetDeviceCount(&count) == 3);
    _exit(0);
  }
  status = 1;
  wait(&status);
  CHECK(status == 0);
  CHECK(cudaFree(p) == 0);
}

// A parent and its child draw on one device, and what the child held is there again when it has ended without a word.
void family() {
  int told[2];
  CHECK(pipe(told) == 0);
  const pid_t child = fork();
  void *p;
  if (child == 0) {
    CHECK(cudaMalloc(&p, 60 * kMiB) == 0 && write(told[1], "1", 1) == 1);
    close(told[1]);
    usleep(300000);
    _exit(7);
  }
  char byte;
  CHECK(read(told[0], &byte, 1) == 1);
  CHECK(cudaMalloc(&p, 60 * kMiB) == kOutOfMemory && cudaGetLastError() == kOutOfMemory);
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
  CHECK(cudaMalloc(&p, 60 * kMiB) == 0);
}

bool stop_workers;
void *worker(void *) {
  while (!__atomic_load_n(&stop_workers, __ATOMIC_RELAXED)) {
    void *p = nullptr, *event = nullptr;
    cudaMalloc(&p, 3 * kMiB);
    cudaFree(p);
    cudaMalloc(&p, 1000);
    cudaFree(p);
    if (cudaEventCreate(&event) == 0) cudaEventDestroy(event);
    cudaGraphicsGLRegisterBuffer();
  }
  return nullptr;
}
void forks_with_locks_held() {
  pthread_t threads[3];
  void *p;
  CHECK(cudaMalloc(&p, 1) == 0);
  for (pthread_t &thread : threads) CHECK(pthread_create(&thread, nullptr, worker, nullptr) == 0);
  for (int n = 0; n < 150; ++n) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      cudaMalloc(&p, 1);
      cudaGraphicsGLRegisterBuffer();  // takes the book's lock
      auto init = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "nvmlInit_v2"));
      _exit(init() == 0 ? 0 : 1);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
  }
  __atomic_store_n(&stop_workers, true, __ATOMIC_RELAXED);
  for (pthread_t &thread : threads) pthread_join(thread, nullptr);
}

// Everything at once from several threads, for the sanitizers.
void *everything(void *seed) {
  unsigned n = static_cast<unsigned>(reinterpret_cast<uintptr_t>(seed)) * 7919 + 1;
  void *stream, *event, *held[8] = {};
  char text[300];
  CHECK(cudaSetDevice(static_cast<int>(n % 2)) == 0 && cudaStreamCreate(&stream) == 0 && cudaEventCreate(&event) == 0);
  for (int round = 0; round < 400; ++round) {
    n = n * 1664525 + 1013904223;
    void *&p = held[n >> 8 & 7];
    if (p != nullptr) {
      if (n >> 12 & 1) CHECK(cudaMemcpy(text, p, sizeof text, kDeviceToHost) == 0);
      CHECK((n >> 11 & 1 ? cudaFreeAsync(p, stream) : cudaFree(p)) == 0);
      p = nullptr;
    } else {
      const size_t size = n >> 13 & 1 ? 1000 : n >> 14 & 1 ? kMiB + 512 : 3 * kMiB;
      const int error = n >> 15 & 1 ? cudaMallocAsync(&p, size, stream) : cudaMalloc(&p, size);
      CHECK(error == 0 || error == kOutOfMemory);
      gpumem::cuda::PointerAttributes about;
      if (error == 0) {
        CHECK(cudaMemcpyAsync(p, text, sizeof text, kHostToDevice, stream) == 0 && cudaMemset(p, 1, size) == 0);
        CHECK(cudaPointerGetAttributes(&about, p) == 0 && about.type == 2);
      }
    }
    CHECK(cudaLaunchKernel(kernel(), {1, 1, 1}, {32, 1, 1}, nullptr, 0, stream) == 0 && cudaEventRecord(event, stream) == 0);
    const int done = cudaEventQuery(event);
    CHECK(done == 0 || done == 600);
    CHECK(cudaStreamSynchronize(stream) == 0);
    free_bytes();
    if (round % 50 == 0) {
      void *graph, *exec, *pinned, *fresh;
      CHECK(cudaStreamBeginCapture(stream, 2) == 0 && cudaLaunchKernel(kernel(), {1, 1, 1}, {32, 1, 1}, nullptr, 0, stream) == 0);
      CHECK(cudaStreamEndCapture(stream, &graph) == 0 && cudaGraphInstantiateWithFlags(&exec, graph, 0) == 0);
      CHECK(cudaGraphLaunch(exec, stream) == 0 && cudaGraphExecDestroy(exec) == 0 && cudaGraphDestroy(graph) == 0);
      CHECK(cudaHostAlloc(&pinned, 10000, 0) == 0 && cudaFreeHost(pinned) == 0);
      CHECK(cudaStreamCreate(&fresh) == 0 && cudaStreamDestroy(fresh) == 0);
      cudaGraphicsGLRegisterBuffer();
      __cudaRegisterFunction(__cudaRegisterFatBinary(text), text, text, "a kernel", -1, nullptr, nullptr, nullptr, nullptr, nullptr);
    }
  }
  for (void *p : held) CHECK(cudaFree(p) == 0);
  CHECK(cudaEventDestroy(event) == 0 && cudaStreamDestroy(stream) == 0);
  return nullptr;
}
void threads() {
  pthread_t all[6];
  for (uintptr_t t = 0; t < 6; ++t) CHECK(pthread_create(&all[t], nullptr, everything, reinterpret_cast<void *>(t + 1)) == 0);
  for (pthread_t &thread : all) CHECK(pthread_join(thread, nullptr) == 0);
  CHECK(cudaDeviceSynchronize() == 0);
}

void host_limit() {
  void *p;
  CHECK(cudaMalloc(&p, kMiB) == 0);
  struct rlimit limit = {256 * kMiB, 256 * kMiB};
  CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
  const int error = cudaMalloc(&p, 60 * kMiB);
  limit = {64 * kMiB, 64 * kMiB};
  setrlimit(RLIMIT_AS, &limit);
  CHECK(error == 0);
  CHECK(cudaMalloc(&p, 30 * kMiB) == 304);
}

void hold(size_t mib) {
  void *p;
  CHECK(cudaMalloc(&p, mib * kMiB) == 0);
  launch();
  printf("held\n");
  fflush(stdout);
  char byte;
  if (read(0, &byte, 1) < 0) exit(1);
}

void die() {
  void *p;
  CHECK(cudaMalloc(&p, 50 * kMiB) == 0);
  raise(SIGKILL);
}

void refused() {
  void *p;
  CHECK(cudaMalloc(&p, 60 * kMiB) == kOutOfMemory);
}

struct Part {
  const char *name;
  void (*run)();
};
constexpr Part kParts[] = {
    {"no_device", no_device}, {"out_of_memory", out_of_memory}, {"small", small}, {"contents", contents}, {"stale", stale},
    {"pointers", pointers}, {"virtual_memory", virtual_memory}, {"shared_memory", shared_memory}, {"pools", pools}, {"streams", streams}, {"graphs", graphs},
    {"contexts", contexts}, {"look", look}, {"properties", properties}, {"code", code}, {"missing", missing},
    {"entry_points", entry_points}, {"forks", forks}, {"forks_with_locks_held", forks_with_locks_held}, {"host_limit", host_limit},
    {"family", family}, {"threads", threads}, {"lagging", lagging}, {"die", die}, {"refused", refused},
};

}  // namespace

int main(int argc, char **argv) {
  if (argc == 3 && strcmp(argv[1], "hold") == 0) return hold(strtoul(argv[2], nullptr, 10)), 0;
  if (argc == 4 && strcmp(argv[1], "by_handle") == 0) return by_handle(argv[2], argv[3]), 0;
  for (const Part &part : kParts)
    if (argc == 2 && strcmp(argv[1], part.name) == 0) return part.run(), 0;
  fprintf(stderr, "vgpu_program: no such part\n");
  return 2;
}
