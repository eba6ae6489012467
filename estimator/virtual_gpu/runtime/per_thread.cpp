// SPDX-License-Identifier: Apache-2.0
// CUDA runtime: names for per-thread default streams (nvcc --default-stream per-thread) of functions whose arguments differ by generation;
// the others are in other_names.def. Part of libgpumem_vgpu.so, preloaded into jobs.

#include "estimator/virtual_gpu/runtime/runtime.h"

#define SAME_AS(name, version, generation, parameters, arguments)              \
  extern "C" int name##_##generation parameters;                               \
  VERSIONED(name##_ptsz, version) int name##_ptsz_##generation parameters { return name##_##generation arguments; }

SAME_AS(cudaGetDriverEntryPoint, CUDA11, cuda11, (const char *name, void **function, unsigned long long flags), (name, function, flags))
SAME_AS(cudaGetDriverEntryPoint, CUDA12, cuda12, (const char *name, void **function, unsigned long long flags, int *status), (name, function, flags, status))
SAME_AS(cudaGetDriverEntryPoint, CUDA13, cuda13, (const char *name, void **function, unsigned long long flags, int *status), (name, function, flags, status))
SAME_AS(cudaMemPrefetchAsync, CUDA11, cuda11, (const void *p, size_t bytes, int device, Stream stream), (p, bytes, device, stream))
SAME_AS(cudaMemPrefetchAsync, CUDA12, cuda12, (const void *p, size_t bytes, int device, Stream stream), (p, bytes, device, stream))
SAME_AS(cudaMemPrefetchAsync, CUDA13, cuda13, (const void *p, size_t bytes, cuda::MemoryLocation to, unsigned flags, Stream stream), (p, bytes, to, flags, stream))
SAME_AS(cudaMemcpyBatchAsync, CUDA12, cuda12,
        (void **to, void **from, size_t *bytes, size_t count, void *how, size_t *which, size_t ways, size_t *failed, Stream stream),
        (to, from, bytes, count, how, which, ways, failed, stream))
SAME_AS(cudaMemcpyBatchAsync, CUDA13, cuda13,
        (void *const *to, const void *const *from, const size_t *bytes, size_t count, void *how, size_t *which, size_t ways, Stream stream),
        (to, from, bytes, count, how, which, ways, stream))
SAME_AS(cudaStreamGetCaptureInfo, CUDA11, cuda11, (Stream stream, int *status, unsigned long long *id), (stream, status, id))
SAME_AS(cudaStreamGetCaptureInfo, CUDA12, cuda12, (Stream stream, int *status, unsigned long long *id), (stream, status, id))
SAME_AS(cudaStreamGetCaptureInfo, CUDA13, cuda13,
        (Stream stream, int *status, unsigned long long *id, void **graph, const void ***dependencies, const void **edges, size_t *count),
        (stream, status, id, graph, dependencies, edges, count))
