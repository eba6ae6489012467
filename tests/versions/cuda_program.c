// SPDX-License-Identifier: Apache-2.0
// A program of the CUDA runtime and driver in C, compiled by check_headers.py against each CUDA generation's own headers and
// linked with its libcudart: what it calls, and the layouts it reads, are those that its compiler saw. Ends with status 0 where
// everything is as on a GPU. Runs under `gpumem estimate`; argument: the name that the GPU must have.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int wrong, checked;

#define CHECK(condition)                                                   \
  do {                                                                     \
    checked++;                                                             \
    if (!(condition)) {                                                    \
      wrong++;                                                             \
      printf("not ok line %d: %s\n", __LINE__, #condition);                \
    }                                                                      \
  } while (0)
#define GOOD(call) CHECK((call) == 0)

enum { kMiB = 1 << 20 };

static void device(const char *name) {
  int count = 0, value = 0, runtime = 0, driver = 0;
  GOOD(cudaGetDeviceCount(&count));
  CHECK(count == 2);
  GOOD(cudaRuntimeGetVersion(&runtime));
  CHECK(runtime / 1000 == CUDART_VERSION / 1000);
  GOOD(cudaDriverGetVersion(&driver));
  CHECK(driver / 1000 >= CUDART_VERSION / 1000);  // minor versions are compatible
  struct cudaDeviceProp properties;
  memset(&properties, 0x5a, sizeof properties);
  GOOD(cudaGetDeviceProperties(&properties, 0));
  CHECK(strcmp(properties.name, name) == 0);
  CHECK(properties.major == 8 && properties.minor == 6);
  CHECK(properties.warpSize == 32 && properties.maxThreadsPerBlock == 1024);
  CHECK(properties.multiProcessorCount == 28);
  CHECK(properties.maxGridSize[0] == 2147483647 && properties.maxThreadsDim[2] == 64);
  CHECK(properties.totalGlobalMem > ((size_t)11 << 30) && properties.totalGlobalMem < ((size_t)13 << 30));
  CHECK(properties.sharedMemPerMultiprocessor == 102400 && properties.sharedMemPerBlockOptin == 101376);
  CHECK(properties.unifiedAddressing == 1 && properties.managedMemory == 1 && properties.concurrentKernels == 1);
#if CUDART_VERSION >= 12000
  CHECK(properties.memoryPoolsSupported == 1);
#endif
  GOOD(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 0));
  CHECK(value == 8);
  GOOD(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 1));
  CHECK(value == 28);
  CHECK(cudaGetDeviceProperties(&properties, 2) == cudaErrorInvalidDevice);
  CHECK(cudaGetLastError() == cudaErrorInvalidDevice && cudaGetLastError() == cudaSuccess);
  CHECK(strcmp(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation") == 0);
  GOOD(cudaDeviceCanAccessPeer(&value, 0, 1));
  GOOD(cudaSetDevice(1));
  GOOD(cudaGetDevice(&value));
  CHECK(value == 1);
  GOOD(cudaSetDevice(0));
}

static void memory(void) {
  size_t before = 0, after = 0, total = 0;
  void *block = NULL;
  GOOD(cudaFree(0));
  GOOD(cudaMemGetInfo(&before, &total));
  GOOD(cudaMalloc(&block, 64 * kMiB));
  GOOD(cudaMemGetInfo(&after, &total));
  CHECK(before - after == 64 * kMiB);
  int numbers[64], back[64];
  for (int i = 0; i < 64; i++) numbers[i] = i * i;
  GOOD(cudaMemcpy(block, numbers, sizeof numbers, cudaMemcpyHostToDevice));
  memset(back, 0, sizeof back);
  GOOD(cudaMemcpy(back, block, sizeof back, cudaMemcpyDeviceToHost));
  CHECK(memcmp(numbers, back, sizeof back) == 0);
  GOOD(cudaMemset(block, 0x11, 16));
  GOOD(cudaMemcpy(back, block, 16, cudaMemcpyDefault));
  CHECK(back[0] == 0x11111111 && back[4] == 16);

  struct cudaPointerAttributes attributes;
  memset(&attributes, 0x5a, sizeof attributes);
  GOOD(cudaPointerGetAttributes(&attributes, (char *)block + 100));
  CHECK(attributes.type == cudaMemoryTypeDevice && attributes.device == 0 && attributes.devicePointer == (char *)block + 100);
  void *host = NULL;
  GOOD(cudaHostAlloc(&host, kMiB, cudaHostAllocDefault));
  GOOD(cudaPointerGetAttributes(&attributes, host));
  CHECK(attributes.type == cudaMemoryTypeHost && attributes.hostPointer == host);
  GOOD(cudaPointerGetAttributes(&attributes, back));
  CHECK(attributes.type == cudaMemoryTypeUnregistered);

  size_t pitch = 0;
  void *rows = NULL;
  GOOD(cudaMallocPitch(&rows, &pitch, 100, 8));
  CHECK(pitch >= 100 && pitch % 32 == 0);
  char image[8][100], read[8][100];
  for (int y = 0; y < 8; y++)
    for (int x = 0; x < 100; x++) image[y][x] = (char)(x + 3 * y);
  memset(read, 0, sizeof read);
  GOOD(cudaMemcpy2D(rows, pitch, image, 100, 100, 8, cudaMemcpyHostToDevice));
  GOOD(cudaMemcpy2D(read, 100, rows, pitch, 100, 8, cudaMemcpyDeviceToHost));
  CHECK(memcmp(image, read, sizeof read) == 0);
  struct cudaMemcpy3DParms copy;
  memset(&copy, 0, sizeof copy);
  const struct cudaPitchedPtr from = {rows, pitch, 100, 8}, to = {read, 100, 100, 8};
  const struct cudaExtent extent = {100, 8, 1};
  copy.srcPtr = from;
  copy.dstPtr = to;
  copy.extent = extent;
  copy.kind = cudaMemcpyDeviceToHost;
  memset(read, 0, sizeof read);
  GOOD(cudaMemcpy3D(&copy));
  CHECK(memcmp(image, read, sizeof read) == 0);

  void *impossible = NULL;
  CHECK(cudaMalloc(&impossible, (size_t)1 << 40) == cudaErrorMemoryAllocation && impossible == NULL);
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
  cudaIpcMemHandle_t handle;
  GOOD(cudaIpcGetMemHandle(&handle, block));
  GOOD(cudaFree(block));
  CHECK(cudaFree(block) == cudaErrorInvalidValue);
  GOOD(cudaFree(rows));
  GOOD(cudaFreeHost(host));
}

static void streams(void) {
  cudaStream_t stream;
  cudaEvent_t begin, end;
  float ms = -1;
  GOOD(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  GOOD(cudaEventCreate(&begin));
  GOOD(cudaEventCreate(&end));
  GOOD(cudaEventRecord(begin, stream));
  void *block = NULL;
  GOOD(cudaMallocAsync(&block, 8 * kMiB, stream));
  GOOD(cudaMemsetAsync(block, 0, 8 * kMiB, stream));
  GOOD(cudaFreeAsync(block, stream));
  GOOD(cudaEventRecord(end, stream));
  GOOD(cudaStreamSynchronize(stream));
  GOOD(cudaEventElapsedTime(&ms, begin, end));
  CHECK(ms >= 0);

  cudaMemPool_t pool;
  struct cudaMemPoolProps properties;
  memset(&properties, 0, sizeof properties);
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = 1;
  GOOD(cudaMemPoolCreate(&pool, &properties));
  cuuint64_t threshold = 64 * kMiB, got = 0;
  GOOD(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  GOOD(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &got));
  CHECK(got == threshold);
  struct cudaMemAccessDesc access;
  memset(&access, 0, sizeof access);
  access.location.type = cudaMemLocationTypeDevice;
  access.location.id = 0;
  access.flags = cudaMemAccessFlagsProtReadWrite;
  GOOD(cudaMemPoolSetAccess(pool, &access, 1));
  GOOD(cudaMallocFromPoolAsync(&block, kMiB, pool, stream));
  struct cudaPointerAttributes attributes;
  GOOD(cudaPointerGetAttributes(&attributes, block));
  CHECK(attributes.device == 1);
  GOOD(cudaFreeAsync(block, stream));
  GOOD(cudaStreamSynchronize(stream));
  GOOD(cudaMemPoolDestroy(pool));

  enum cudaStreamCaptureStatus status;
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  GOOD(cudaMalloc(&block, kMiB));
  GOOD(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  GOOD(cudaStreamIsCapturing(stream, &status));
  CHECK(status == cudaStreamCaptureStatusActive);
  GOOD(cudaMemsetAsync(block, 1, kMiB, stream));
  GOOD(cudaStreamEndCapture(stream, &graph));
#if CUDART_VERSION >= 12000
  GOOD(cudaGraphInstantiate(&executable, graph, 0));
#else
  GOOD(cudaGraphInstantiate(&executable, graph, NULL, NULL, 0));
#endif
  GOOD(cudaGraphLaunch(executable, stream));
  GOOD(cudaStreamSynchronize(stream));
  GOOD(cudaGraphExecDestroy(executable));
  GOOD(cudaGraphDestroy(graph));
  GOOD(cudaFree(block));
  GOOD(cudaEventDestroy(begin));
  GOOD(cudaEventDestroy(end));
  GOOD(cudaStreamDestroy(stream));
}

// The driver as libraries find it since 11.3: by name, for the version that they were built with.
static void *driver_function(const char *name) {
  void *function = NULL;
#if CUDART_VERSION >= 13000
  enum cudaDriverEntryPointQueryResult found;
  GOOD(cudaGetDriverEntryPointByVersion(name, &function, CUDART_VERSION, cudaEnableDefault, &found));
  CHECK(found == cudaDriverEntryPointSuccess);
#elif CUDART_VERSION >= 12000
  enum cudaDriverEntryPointQueryResult found;
  GOOD(cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &found));
  CHECK(found == cudaDriverEntryPointSuccess);
#else
  GOOD(cudaGetDriverEntryPoint(name, &function, cudaEnableDefault));
#endif
  CHECK(function != NULL);
  return function;
}

static void driver(const char *name) {
  CUresult (*get_name)(char *, int, CUdevice) = driver_function("cuDeviceGetName");
  CUresult (*total)(size_t *, CUdevice) = driver_function("cuDeviceTotalMem");
  CUresult (*granularity)(size_t *, const CUmemAllocationProp *, CUmemAllocationGranularity_flags) = driver_function("cuMemGetAllocationGranularity");
  CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long) = driver_function("cuMemAddressReserve");
  CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long) = driver_function("cuMemCreate");
  CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long) = driver_function("cuMemMap");
  CUresult (*allow)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t) = driver_function("cuMemSetAccess");
  CUresult (*unmap)(CUdeviceptr, size_t) = driver_function("cuMemUnmap");
  CUresult (*release)(CUmemGenericAllocationHandle) = driver_function("cuMemRelease");
  CUresult (*free_address)(CUdeviceptr, size_t) = driver_function("cuMemAddressFree");
  CUresult (*error_name)(CUresult, const char **) = driver_function("cuGetErrorName");
  char text[256] = "";
  size_t bytes = 0, page = 0;
  const char *word = "";
  GOOD(get_name(text, sizeof text, 0));
  CHECK(strcmp(text, name) == 0);
  GOOD(total(&bytes, 0));
  CHECK(bytes > ((size_t)11 << 30));
  GOOD(error_name(CUDA_ERROR_OUT_OF_MEMORY, &word));
  CHECK(strcmp(word, "CUDA_ERROR_OUT_OF_MEMORY") == 0);

  CUmemAllocationProp properties;
  memset(&properties, 0, sizeof properties);
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  GOOD(granularity(&page, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  CHECK(page == 2 * kMiB);
  CUdeviceptr address = 0;
  CUmemGenericAllocationHandle physical;
  CUmemAccessDesc access;
  memset(&access, 0, sizeof access);
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  size_t before = 0, after = 0;
  GOOD(cudaMemGetInfo(&before, &bytes));
  GOOD(reserve(&address, 16 * kMiB, 0, 0, 0));
  GOOD(create(&physical, 4 * kMiB, &properties, 0));
  GOOD(map(address, 4 * kMiB, 0, physical, 0));
  GOOD(allow(address, 4 * kMiB, &access, 1));
  GOOD(cudaMemGetInfo(&after, &bytes));
  CHECK(before - after == 4 * kMiB);
  int number = 42, back = 0;
  GOOD(cudaMemcpy((void *)address, &number, sizeof number, cudaMemcpyHostToDevice));
  GOOD(cudaMemcpy(&back, (void *)address, sizeof back, cudaMemcpyDeviceToHost));
  CHECK(back == 42);
  GOOD(unmap(address, 4 * kMiB));
  GOOD(release(physical));
  GOOD(free_address(address, 16 * kMiB));
  GOOD(cudaMemGetInfo(&after, &bytes));
  CHECK(before == after);
}

int main(int argc, char **argv) {
  const char *name = argc > 1 ? argv[1] : "NVIDIA GeForce RTX 3060";
  device(name);
  memory();
  streams();
  driver(name);
  printf("%d checked, %d wrong\n", checked, wrong);
  return wrong != 0;
}
