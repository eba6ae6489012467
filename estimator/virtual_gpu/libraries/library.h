// SPDX-License-Identifier: Apache-2.0
// What the stand-ins for NVIDIA's libraries share: result codes, notes for the estimate, the real libraries.
// Part of libgpumem_vgpu.so; runs in the job's processes. libc only.
//
// Note [Stand-ins for libraries]
// PyTorch calls cuBLAS, cuDNN and the others at their public C interfaces; each such name is answered here, so that no
// real library ever looks for a driver. Every public name is listed in names/*.def:
//   * what computes answers success and touches no data (results that the host reads are zeroed);
//   * what asks or sets (versions, modes, streams, descriptors, sizes) is answered with the right value;
//   * every other name is a weak stub (missing.cpp) that reports the name and answers the library's "not supported".
// Sizes that only the real library knows are answered by a rule and said to be so: note_guess().
//
// Threads: as the real libraries: different handles from different threads at will.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "estimator/virtual_gpu/internal.h"

namespace gpumem::virtual_gpu::libraries {

namespace book = ::gpumem::book;

// Tags of handles, for find_handle(). One space for all libraries.
enum HandleKind : uint32_t {
  kCublas = 0x4c01, kCublasLt, kCublasLtObject, kCublasXt,
  kCudnn = 0x4d01, kCudnnObject, kCudnnDropout, kCudnnRnn,
  kCufft = 0x4e01,
  kCusolver = 0x4f01, kCusolverObject, kCusolverSp, kCusolverSpInfo, kCusolverRf, kCusolverMg, kCusolverMgObject,
  kCusparse, kCusparseObject, kCurand,
  kNccl = 0x5001, kCupti, kCufile,
};

// Each library's word for "I cannot do that", from its public header.
enum : long {
  kCublasNotSupported = 15,       // CUBLAS_STATUS_NOT_SUPPORTED
  kCudnnNotSupported = 3000,      // CUDNN_STATUS_NOT_SUPPORTED
  kCufftNotSupported = 16,        // CUFFT_NOT_SUPPORTED (0x10)
  kCusolverNotSupported = 9,      // CUSOLVER_STATUS_NOT_SUPPORTED
  kCusparseNotSupported = 10,     // CUSPARSE_STATUS_NOT_SUPPORTED
  kCurandNotSupported = 103,      // CURAND_STATUS_TYPE_ERROR: it has no code of its own for this
  kNcclNotSupported = 3,          // ncclInternalError
  kCuptiNotSupported = 27,        // CUPTI_ERROR_NOT_SUPPORTED
  kCufileNotSupported = 5007,     // CU_FILE_PLATFORM_NOT_SUPPORTED, in the low half of CUfileError_t
};

// Reports a function that we lack and returns `status`.
long missing(const char *function, long status);

// --- What the estimate should say. One line a process and text in $GPUMEM_RECORD/libraries-PID.jsonl (doc/contracts.md,
//     Record); outside a probe they do nothing. Texts are literals or live on: plain ASCII without quotes. ---

// A size or choice was answered by a rule of ours, not by the library: a note that lowers the estimate's confidence.
void note_guess(const char *text);
// The same where the figure is too small to matter.
void note_detail(const char *text);
// Which cuDNN plans: "9.19.0 (the job's own)".
void note_cudnn(const char *text);

// --- Real libraries ---

// Handle of a library that the process has already loaded, by the first SONAME of the nullptr-ended list that is; nullptr if none.
void *loaded_library(const char *const *sonames);
// A function of a loaded library: not ours, the real one behind it. nullptr if the library is not loaded.
void *loaded_function(const char *const *sonames, const char *function);

// The handle, or nullptr if the pointer is none of that kind.
inline Handle *cast(const void *pointer, HandleKind kind) { return find_handle(pointer, kind); }

// The result of device work that will be read from the host (info codes, scalars): zero it.
inline void zero_result(void *pointer, size_t bytes) {
  if (pointer != nullptr) forget_contents(pointer, bytes);
}

constexpr uint64_t round_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace gpumem::virtual_gpu::libraries
