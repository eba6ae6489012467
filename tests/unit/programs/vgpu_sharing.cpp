// SPDX-License-Identifier: Apache-2.0
// Memory of others, one part a word on the command line, for virtual_gpu_test: external memory and semaphores, pools of other
// processes, multicast objects; and references to textures and surfaces. Linked like an nvcc program, with two devices.
// Exit status 0: all was as in CUDA; else the failing line is on standard error.

#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "estimator/cuda_interface/types.h"
#include "tests/unit/programs/parts.h"

using gpumem::cuda::Extent;
using gpumem::cuda::MemoryLocation;
using gpumem::cuda::MemoryPoolProperties;
using gpumem::cuda::PhysicalProperties;

extern "C" {
struct Channels {
  int x, y, z, w, kind;
};
struct External {  // cudaExternalMemoryHandleDesc, CUDA_EXTERNAL_MEMORY_HANDLE_DESC
  int type;
  int unused;
  int descriptor;
  int unused_too;
  void *name;
  unsigned long long size;
  unsigned flags, reserved[16];
};
struct Semaphore {
  int type;
  int unused;
  int descriptor;
  int unused_too;
  void *name;
  unsigned flags, reserved[16];
};
struct Buffer {
  unsigned long long offset, size;
  unsigned flags, reserved[16];
};
struct Mipmaps {
  unsigned long long offset;
  Channels channels;
  Extent extent;
  unsigned flags, levels, reserved[16];
};
struct PoolPointer {
  unsigned char reserved[64];
};
struct Multicast {
  unsigned devices;
  size_t size;
  unsigned long long handle_types, flags;
};
int cudaMalloc(void **, size_t);
int cudaFree(void *);
int cudaFreeAsync(void *, void *);
int cudaMallocFromPoolAsync(void **, size_t, void *, void *);
int cudaMemcpy(void *, const void *, size_t, int);
int cudaDeviceSynchronize();
int cudaDeviceSetMemPool(int, void *);
int cudaDeviceGetDefaultMemPool(void **, int);
int cudaMemPoolCreate(void **, const MemoryPoolProperties *);
int cudaMemPoolDestroy(void *);
int cudaMemPoolExportToShareableHandle(void *, void *, int, unsigned);
int cudaMemPoolImportFromShareableHandle(void **, void *, int, unsigned);
int cudaMemPoolExportPointer(PoolPointer *, void *);
int cudaMemPoolImportPointer(void **, void *, const PoolPointer *);
int cudaImportExternalMemory(void **, const External *);
int cudaExternalMemoryGetMappedBuffer(void **, void *, const Buffer *);
int cudaExternalMemoryGetMappedMipmappedArray(void **, void *, const Mipmaps *);
int cudaDestroyExternalMemory(void *);
int cudaImportExternalSemaphore(void **, const Semaphore *);
int cudaSignalExternalSemaphoresAsync_v2(void *const *, const void *, unsigned, void *);
int cudaWaitExternalSemaphoresAsync_v2(void *const *, const void *, unsigned, void *);
int cudaDestroyExternalSemaphore(void *);
int cudaFreeMipmappedArray(void *);
int cudaGetMipmappedArrayLevel(void **, const void *, unsigned);
int cudaMallocArray(void **, const Channels *, size_t, size_t, unsigned);
int cudaFreeArray(void *);
void __cudaRegisterTexture(void **, const void *, const void **, const char *, int, int, int);
void __cudaRegisterSurface(void **, const void *, const void **, const char *, int, int);
int cudaBindTexture(size_t *, const void *, const void *, const Channels *, size_t);
int cudaBindTextureToArray(const void *, const void *, const Channels *);
int cudaUnbindTexture(const void *);
int cudaGetTextureAlignmentOffset(size_t *, const void *);
int cudaGetTextureReference(const void **, const void *);
int cudaBindSurfaceToArray(const void *, const void *, const Channels *);
int cudaGetSurfaceReference(const void **, const void *);
int cuInit(unsigned);
int cuModuleLoadData(void **, const void *);
int cuModuleGetTexRef(void **, void *, const char *);
int cuModuleGetSurfRef(void **, void *, const char *);
int cuModuleUnload(void *);
int cuTexRefSetAddress_v2(size_t *, void *, uint64_t, size_t);
int cuTexRefGetAddress_v2(uint64_t *, void *);
int cuTexRefSetArray(void *, void *, unsigned);
int cuTexRefGetArray(void **, void *);
int cuTexRefSetFormat(void *, unsigned, int);
int cuTexRefGetFormat(unsigned *, int *, void *);
int cuTexRefSetAddressMode(void *, int, int);
int cuTexRefGetAddressMode(int *, void *, int);
int cuSurfRefSetArray(void *, void *, unsigned);
int cuSurfRefGetArray(void **, void *);
int cuDeviceGetAttribute(int *, int, int);
int cuMemCreate(uint64_t *, size_t, const PhysicalProperties *, unsigned long long);
int cuMemRelease(uint64_t);
int cuMemExportToShareableHandle(void *, uint64_t, int, unsigned long long);
int cuMemImportFromShareableHandle(uint64_t *, void *, int);
int cuMemAddressReserve(uint64_t *, size_t, size_t, uint64_t, unsigned long long);
int cuMemAddressFree(uint64_t, size_t);
int cuMemMap(uint64_t, size_t, size_t, uint64_t, unsigned long long);
int cuMemUnmap(uint64_t, size_t);
int cuMulticastCreate(uint64_t *, const Multicast *);
int cuMulticastAddDevice(uint64_t, int);
int cuMulticastBindMem(uint64_t, size_t, uint64_t, size_t, size_t, unsigned long long);
int cuMulticastBindAddr(uint64_t, size_t, uint64_t, size_t, unsigned long long);
int cuMulticastUnbind(uint64_t, int, size_t, size_t);
int cuMulticastGetGranularity(size_t *, const Multicast *, int);
}

namespace {

constexpr int kToDevice = 1, kToHost = 2, kInvalidValue = 1, kInvalidHandle = 400, kNotSupported = 801;

PhysicalProperties on_device(int device) {
  PhysicalProperties properties = {};
  properties.type = 1;
  properties.requestedHandleTypes = 1;
  properties.location = {1, device};
  return properties;
}

void external() {
  const PhysicalProperties properties = on_device(0);
  uint64_t memory = 0, address = 0;
  int descriptor = -1;
  char text[32] = "";
  CHECK(cuInit(0) == 0 && cuMemCreate(&memory, 4 * kMiB, &properties, 0) == 0);
  CHECK(cuMemAddressReserve(&address, 4 * kMiB, 0, 0, 0) == 0 && cuMemMap(address, 4 * kMiB, 0, memory, 0) == 0);
  CHECK(cuMemExportToShareableHandle(&descriptor, memory, 1, 0) == 0);
  const size_t before = used();

  void *imported = nullptr, *pointer = nullptr;
  External wanted = {};
  wanted.type = 1, wanted.descriptor = descriptor, wanted.size = 4 * kMiB;
  CHECK(cudaImportExternalMemory(nullptr, &wanted) == kInvalidValue && cudaImportExternalMemory(&imported, nullptr) == kInvalidValue);
  wanted.size = 5 * kMiB;
  CHECK(cudaImportExternalMemory(&imported, &wanted) == kInvalidValue);  // more than there is
  wanted.size = 4 * kMiB, wanted.type = 2;
  CHECK(cudaImportExternalMemory(&imported, &wanted) == kNotSupported);  // Windows
  wanted.type = 77;
  CHECK(cudaImportExternalMemory(&imported, &wanted) == kInvalidValue);
  wanted.type = 1, wanted.descriptor = open("/dev/null", O_RDWR);
  CHECK(cudaImportExternalMemory(&imported, &wanted) == kInvalidHandle);  // nobody's memory
  CHECK(fcntl(wanted.descriptor, F_GETFD) >= 0 && close(wanted.descriptor) == 0);
  wanted.descriptor = descriptor;
  CHECK(cudaImportExternalMemory(&imported, &wanted) == 0 && fcntl(descriptor, F_GETFD) < 0);  // it is CUDA's now

  Buffer buffer = {};
  buffer.offset = 2 * kMiB + 100, buffer.size = kMiB;
  CHECK(cudaExternalMemoryGetMappedBuffer(&pointer, reinterpret_cast<void *>(address), &buffer) == kInvalidHandle);
  CHECK(cudaExternalMemoryGetMappedBuffer(&pointer, imported, &buffer) == 0);
  CHECK(cudaMemcpy(pointer, "from outside", 13, kToDevice) == 0);
  CHECK(cudaMemcpy(text, reinterpret_cast<char *>(address) + 2 * kMiB + 100, 13, kToHost) == 0 && strcmp(text, "from outside") == 0);
  CHECK(used() == before);  // its owner pays
  buffer.size = 2 * kMiB;
  void *beyond = nullptr;
  CHECK(cudaExternalMemoryGetMappedBuffer(&beyond, imported, &buffer) == kInvalidValue);
  Mipmaps mipmaps = {};
  mipmaps.channels = {32, 0, 0, 0, 2}, mipmaps.extent = {256, 256, 0}, mipmaps.levels = 3;
  void *levels = nullptr, *level = nullptr;
  CHECK(cudaExternalMemoryGetMappedMipmappedArray(&levels, imported, &mipmaps) == 0 && used() == before);
  CHECK(cudaGetMipmappedArrayLevel(&level, levels, 2) == 0 && cudaGetMipmappedArrayLevel(&level, levels, 3) == kInvalidValue);
  CHECK(cudaFreeMipmappedArray(levels) == 0 && used() == before);

  CHECK(cudaDestroyExternalMemory(imported) == 0 && cudaDestroyExternalMemory(imported) == kInvalidHandle);
  CHECK(cudaMemcpy(text, pointer, 13, kToHost) == 0);  // what was mapped is there until it is freed
  CHECK(cudaFree(static_cast<char *>(pointer) + 1) == kInvalidValue && cudaFree(pointer) == 0 && cudaFree(pointer) == kInvalidValue);
  CHECK(cuMemUnmap(address, 4 * kMiB) == 0 && cuMemRelease(memory) == 0 && cuMemAddressFree(address, 4 * kMiB) == 0);
  CHECK(used() == before - 4 * kMiB);

  void *semaphore = nullptr;
  Semaphore signal = {};
  signal.type = 1, signal.descriptor = open("/dev/null", O_RDWR);
  const char parameters[144] = {};
  CHECK(cudaImportExternalSemaphore(&semaphore, nullptr) == kInvalidValue);
  CHECK(cudaImportExternalSemaphore(&semaphore, &signal) == 0 && fcntl(signal.descriptor, F_GETFD) < 0);
  void *none = nullptr;
  CHECK(cudaImportExternalSemaphore(&none, &signal) == kInvalidHandle && none == nullptr);  // closed
  CHECK(cudaSignalExternalSemaphoresAsync_v2(&semaphore, parameters, 1, nullptr) == 0);
  CHECK(cudaWaitExternalSemaphoresAsync_v2(&semaphore, parameters, 1, nullptr) == 0 && cudaDeviceSynchronize() == 0);
  CHECK(cudaWaitExternalSemaphoresAsync_v2(&none, parameters, 1, nullptr) == kInvalidHandle);
  CHECK(cudaDestroyExternalSemaphore(semaphore) == 0 && cudaDestroyExternalSemaphore(semaphore) == kInvalidHandle);
}

// Two processes: the child begins before CUDA is used, and imports the parent's pool and a block of it.
void shared_pools() {
  int down[2], up[2];
  char text[32] = "";
  PoolPointer shared;
  CHECK(pipe(down) == 0 && pipe(up) == 0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    int descriptor = -1;
    void *pool = nullptr, *block = nullptr, *none = nullptr;
    CHECK(close(down[1]) == 0 && close(up[0]) == 0);
    CHECK(read(down[0], &descriptor, sizeof descriptor) == sizeof descriptor && read(down[0], &shared, sizeof shared) == sizeof shared);
    snprintf(text, sizeof text, "/proc/%d/fd/%d", getppid(), descriptor);
    const int opened = open(text, O_RDWR);
    const size_t before = used();
    CHECK(cudaMemPoolImportFromShareableHandle(&pool, reinterpret_cast<void *>(intptr_t{0}), 1, 0) == kInvalidValue);
    CHECK(cudaMemPoolImportFromShareableHandle(&pool, reinterpret_cast<void *>(static_cast<intptr_t>(opened)), 1, 0) == 0);
    CHECK(cudaMallocFromPoolAsync(&none, kMiB, pool, nullptr) == kInvalidValue);  // it gives nothing out here
    CHECK(cudaDeviceSetMemPool(0, pool) == kInvalidValue);
    CHECK(cudaMemPoolImportPointer(&block, pool, &shared) == 0 && used() == before);
    CHECK(cudaMemcpy(text, block, 9, kToHost) == 0 && strcmp(text, "pool's 2") == 0);
    CHECK(cudaMemcpy(block, "seen", 5, kToDevice) == 0);
    CHECK(cudaFreeAsync(block, nullptr) == 0 && cudaFree(block) == kInvalidValue && cudaMemPoolDestroy(pool) == 0 && used() == before);
    memset(&shared, 0, sizeof shared);
    CHECK(cudaMemPoolImportPointer(&block, pool, &shared) == kInvalidValue);
    CHECK(write(up[1], "1", 1) == 1);
    _exit(0);
  }
  CHECK(close(down[0]) == 0 && close(up[1]) == 0);
  MemoryPoolProperties properties = {};
  properties.allocType = 1;
  properties.location = {1, 0};
  void *closed = nullptr, *pool = nullptr, *first = nullptr, *second = nullptr;
  int descriptor = -1;
  CHECK(cudaMemPoolCreate(&closed, &properties) == 0 && cudaMemPoolExportToShareableHandle(&descriptor, closed, 1, 0) == kInvalidValue);
  CHECK(cudaDeviceGetDefaultMemPool(&pool, 0) == 0 && cudaMemPoolExportToShareableHandle(&descriptor, pool, 1, 0) == kInvalidValue);
  CHECK(cudaMallocFromPoolAsync(&first, kMiB, closed, nullptr) == 0 && cudaMemPoolExportPointer(&shared, first) == kInvalidValue);
  CHECK(cudaFreeAsync(first, nullptr) == 0 && cudaMemPoolDestroy(closed) == 0);
  properties.handleTypes = 1;
  CHECK(cudaMemPoolCreate(&pool, &properties) == 0 && cudaMemPoolExportToShareableHandle(&descriptor, pool, 1, 0) == 0);
  CHECK(cudaMemPoolExportToShareableHandle(&descriptor, pool, 8, 0) == kNotSupported);
  CHECK(cudaMallocFromPoolAsync(&first, kMiB + 512, pool, nullptr) == 0 && cudaMallocFromPoolAsync(&second, kMiB, pool, nullptr) == 0);
  CHECK(cudaMemcpy(second, "pool's 2", 9, kToDevice) == 0);
  CHECK(cudaMemPoolExportPointer(&shared, static_cast<char *>(second) + 8) == kInvalidValue && cudaMemPoolExportPointer(&shared, second) == 0);
  CHECK(write(down[1], &descriptor, sizeof descriptor) == sizeof descriptor && write(down[1], &shared, sizeof shared) == sizeof shared);
  int status = 0;
  CHECK(read(up[0], text, 1) == 1 && waitpid(child, &status, 0) == child && status == 0);
  CHECK(cudaMemcpy(text, second, 5, kToHost) == 0 && strcmp(text, "seen") == 0);
  CHECK(cudaFreeAsync(first, nullptr) == 0 && cudaFreeAsync(second, nullptr) == 0 && cudaMemPoolDestroy(pool) == 0);
}

void multicast() {
  int has = 0;
  size_t granularity = 0;
  uint64_t object = 0, memory[2] = {}, address = 0;
  Multicast wanted{2, 8 * kMiB, 1, 0};
  CHECK(cuInit(0) == 0 && cuDeviceGetAttribute(&has, 132, 0) == 0);
  if (!has) {
    CHECK(cuMulticastCreate(&object, &wanted) == kNotSupported);
    return;
  }
  CHECK(cuMulticastGetGranularity(&granularity, &wanted, 0) == 0 && granularity == 2 * kMiB);
  const PhysicalProperties properties[2] = {on_device(0), on_device(1)};
  for (int d = 0; d < 2; ++d) CHECK(cuMemCreate(&memory[d], 4 * kMiB, &properties[d], 0) == 0);
  const size_t before = used();
  wanted.size = 3 * kMiB;
  CHECK(cuMulticastCreate(&object, &wanted) == kInvalidValue);
  wanted.size = 8 * kMiB;
  CHECK(cuMulticastCreate(&object, &wanted) == 0 && used() == before);
  CHECK(cuMulticastAddDevice(object, 0) == 0 && cuMulticastAddDevice(object, 0) == kInvalidValue && cuMulticastAddDevice(object, 7) == 101);
  CHECK(cuMulticastBindMem(object, 0, memory[0], 0, 4 * kMiB, 0) == kInvalidValue);  // a device is missing
  CHECK(cuMulticastAddDevice(object, 1) == 0 && cuMulticastAddDevice(memory[0], 1) == kInvalidValue);
  CHECK(cuMulticastBindMem(object, 6 * kMiB, memory[0], 0, 4 * kMiB, 0) == kInvalidValue);
  CHECK(cuMulticastBindMem(object, 0, object, 0, 4 * kMiB, 0) == kInvalidValue);
  CHECK(cuMulticastBindMem(object, 0, memory[0], 0, 4 * kMiB, 0) == 0);
  CHECK(cuMulticastBindMem(object, 2 * kMiB, memory[0], 0, 2 * kMiB, 0) == kInvalidValue);  // taken
  CHECK(cuMemAddressReserve(&address, 16 * kMiB, 0, 0, 0) == 0 && cuMemMap(address, 4 * kMiB, 0, memory[1], 0) == 0);
  CHECK(cuMulticastBindAddr(object, 0, address, 4 * kMiB, 0) == 0);
  CHECK(cuMemMap(address + 8 * kMiB, 8 * kMiB, 0, object, 0) == 0);
  int value = 5;
  CHECK(cudaMemcpy(reinterpret_cast<void *>(address + 8 * kMiB), &value, sizeof value, kToDevice) == 0);
  CHECK(used() == before);  // it is memory that exists

  int descriptor = -1;
  uint64_t other = 0;
  CHECK(cuMemExportToShareableHandle(&descriptor, object, 1, 0) == 0);
  CHECK(cuMemImportFromShareableHandle(&other, reinterpret_cast<void *>(static_cast<intptr_t>(descriptor)), 1) == 0);
  CHECK(cuMulticastAddDevice(other, 0) == 0 && cuMemRelease(other) == 0 && close(descriptor) == 0);

  CHECK(cuMemRelease(memory[0]) == 0 && used() == before);  // bound: it lives on
  CHECK(cuMulticastUnbind(object, 0, 0, 2 * kMiB) == kInvalidValue && cuMulticastUnbind(object, 0, 0, 4 * kMiB) == 0);
  CHECK(used() == before - 4 * kMiB);
  CHECK(cuMemUnmap(address, 4 * kMiB) == 0 && cuMemRelease(memory[1]) == 0);
  CHECK(cuMemUnmap(address + 8 * kMiB, 8 * kMiB) == 0 && cuMemRelease(object) == 0 && cuMemRelease(object) == kInvalidValue);
  CHECK(cuMemAddressFree(address, 16 * kMiB) == 0);
}

void references() {
  static int texture[32], surface[4], stranger[32];
  const Channels channels{32, 0, 0, 0, 2};
  const void *found = nullptr;
  void *memory = nullptr, *array = nullptr;
  size_t offset = 99;
  __cudaRegisterTexture(nullptr, texture, nullptr, "texture", 2, 0, 0);
  __cudaRegisterSurface(nullptr, surface, nullptr, "surface", 2, 0);
  CHECK(cudaMalloc(&memory, 4096) == 0 && cudaMallocArray(&array, &channels, 16, 16, 0) == 0);
  CHECK(cudaGetTextureReference(&found, texture) == 0 && found == texture && cudaGetTextureReference(&found, stranger) == 18);
  CHECK(cudaGetSurfaceReference(&found, surface) == 0 && found == surface && cudaGetSurfaceReference(&found, texture) == 37);
  CHECK(cudaGetTextureAlignmentOffset(&offset, texture) == 19);  // not bound
  CHECK(cudaBindTexture(&offset, texture, memory, &channels, 4096) == 0 && offset == 0);
  CHECK(cudaBindTexture(nullptr, texture, static_cast<char *>(memory) + 64, &channels, 1024) == kInvalidValue);
  CHECK(cudaBindTexture(&offset, texture, static_cast<char *>(memory) + 64, &channels, 1024) == 0 && offset == 64);
  CHECK(cudaGetTextureAlignmentOffset(&offset, texture) == 0 && offset == 64);
  CHECK(cudaBindTexture(&offset, stranger, memory, &channels, 4096) == 18 && cudaBindTexture(&offset, texture, memory, nullptr, 4096) == kInvalidValue);
  CHECK(cudaBindTexture(&offset, texture, stranger, &channels, 64) == kInvalidValue);  // host memory
  CHECK(cudaBindTextureToArray(texture, array, &channels) == 0 && cudaBindTextureToArray(texture, memory, &channels) == kInvalidHandle);
  CHECK(cudaUnbindTexture(texture) == 0 && cudaGetTextureAlignmentOffset(&offset, texture) == 19);
  CHECK(cudaBindSurfaceToArray(surface, array, &channels) == 0 && cudaBindSurfaceToArray(texture, array, &channels) == 37);

  void *module = nullptr, *reference = nullptr, *again = nullptr, *other = nullptr, *got = nullptr;
  uint64_t address = 0;
  unsigned format = 0;
  int count = 0, mode = 0;
  const char image[] = ".version 8.0\n.target sm_80\n.address_size 64\n";
  CHECK(cuInit(0) == 0 && cuModuleLoadData(&module, image) == 0);
  CHECK(cuModuleGetTexRef(&reference, module, "t") == 0 && cuModuleGetTexRef(&again, module, "t") == 0 && again == reference);
  CHECK(cuModuleGetTexRef(&again, nullptr, "t") != 0 && cuModuleGetSurfRef(&other, module, "t") == 0 && other != reference);
  CHECK(cuTexRefGetAddress_v2(&address, reference) == kInvalidValue);
  CHECK(cuTexRefSetAddress_v2(&offset, reference, reinterpret_cast<uint64_t>(memory), 4096) == 0 && offset == 0);
  CHECK(cuTexRefGetAddress_v2(&address, reference) == 0 && address == reinterpret_cast<uint64_t>(memory));
  CHECK(cuTexRefSetArray(reference, array, 1) == 0 && cuTexRefGetArray(&got, reference) == 0 && got == array);
  CHECK(cuTexRefGetAddress_v2(&address, reference) == kInvalidValue && cuTexRefSetArray(other, array, 1) == kInvalidValue);
  CHECK(cuTexRefSetFormat(reference, 0x01, 4) == 0 && cuTexRefGetFormat(&format, &count, reference) == 0 && format == 1 && count == 4);
  CHECK(cuTexRefSetAddressMode(reference, 2, 1) == 0 && cuTexRefGetAddressMode(&mode, reference, 2) == 0 && mode == 1);
  CHECK(cuTexRefSetAddressMode(reference, 3, 1) == kInvalidValue);
  CHECK(cuSurfRefSetArray(other, array, 0) == 0 && cuSurfRefGetArray(&got, other) == 0 && got == array);
  CHECK(cuModuleUnload(module) == 0 && cudaFreeArray(array) == 0 && cudaFree(memory) == 0);
}

constexpr Part kParts[] = {{"external", external}, {"shared_pools", shared_pools}, {"multicast", multicast}, {"references", references}};

}  // namespace

int main(int count, char **words) { return run_part(kParts, count, words); }
