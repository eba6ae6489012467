// SPDX-License-Identifier: Apache-2.0
// Parts of vgpu_program: device memory, contents, pointers, virtual memory, pools.

#include <sys/resource.h>

#include "tests/unit/programs/vgpu_program.h"

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

void refused() {
  void *p;
  CHECK(cudaMalloc(&p, 60 * kMiB) == kOutOfMemory);
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
