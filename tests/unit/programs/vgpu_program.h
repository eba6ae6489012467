// SPDX-License-Identifier: Apache-2.0
// What the files of vgpu_program share: the functions of CUDA that it calls, and checks. Its parts are one word of its command line each.
#pragma once

#include <stdint.h>

#include "estimator/cuda_interface/types.h"
#include "tests/unit/programs/parts.h"

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
int cudaMemcpy(void *, const void *, size_t, int);
int cudaMemcpyAsync(void *, const void *, size_t, int, void *);
int cudaMemcpy2D(void *, size_t, const void *, size_t, size_t, size_t, int);
int cudaMemset(void *, int, size_t);
int cudaGetLastError();
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
int cuModuleLoad(void **, const char *);
int cuModuleUnload(void *);
int cuFuncGetAttribute(int *, int, void *);
int cuModuleGetFunction(void **, void *, const char *);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
}

inline constexpr int kOutOfMemory = 2, kHostToDevice = 1, kDeviceToHost = 2, kDeviceToDevice = 3;

inline size_t free_bytes() {
  size_t free_now = 0, total = 0;
  CHECK(cudaMemGetInfo(&free_now, &total) == 0);
  return free_now;
}

inline const void *kernel() { return reinterpret_cast<const void *>(&free_bytes); }

inline void launch() { CHECK(cudaLaunchKernel(kernel(), {1, 1, 1}, {32, 1, 1}, nullptr, 0, nullptr) == 0); }

// vgpu_program_memory.cpp: device memory, contents, pointers, virtual memory, pools.
void out_of_memory();
void small();
void contents();
void stale();
void pointers();
void virtual_memory();
void pools();
void refused();
void host_limit();

// vgpu_program_work.cpp: streams, events, captures, contexts, kernels' code and the properties that libraries look at.
void streams();
void lagging();
void graphs();
void contexts();
void properties();
void code();

// vgpu_program_processes.cpp: processes and threads that share a device, forks, looking without using, names of functions.
void no_device();
void look();
void shared_memory();
void by_handle(const char *path, const char *generation);
void missing();
void entry_points();
void forks();
void family();
void forks_with_locks_held();
void threads();
void hold(size_t mib);
void end(const char *how);
void die();
