// SPDX-License-Identifier: Apache-2.0
// cublasXt: products of host matrices on one or several GPUs, tile by tile. Runs in the job's processes.
//
// Note [cublasXt tiles]
// Matrices lie in host memory and are never wholly on a device. While a routine runs, each selected GPU holds tiles of
// blockDim x blockDim elements (2048 unless set; cuBLAS documentation, "cublasXt", Tiling design approach): of each of the
// three operands one that is computed with and one that is being copied. How many the library really keeps is not
// documented; the estimate says that it is a rule. Results are not computed: the host's matrices stay as they were.
#include "estimator/virtual_gpu/libraries/handles.h"

using namespace gpumem::virtual_gpu;
using namespace gpumem::virtual_gpu::libraries;

namespace {

enum : int { kSuccess = 0, kNotInitialized = 1, kAllocFailed = 3, kInvalidValue = 7 };
constexpr uint64_t kDefaultBlock = 2048, kTiles = 6;

// In a handle's numbers.
enum Number { kBlock, kPinning, kDevices };  // kDevices: one bit each; 0: not selected yet

int run(void *pointer, uint64_t element_bytes) {
  const Handle *handle = cast(pointer, kCublasXt);
  if (handle == nullptr) return kNotInitialized;
  if (handle->number[kDevices] == 0) return kNotInitialized;
  note_guess("cublasXt: the tiles of matrices on the GPU are sized by a rule, and its results are not computed");
  void *tiles[book::kMaxDevices] = {};
  int status = kSuccess;
  for (int device = 0; device < book::kMaxDevices && status == kSuccess; device++) {
    if (!(handle->number[kDevices] >> device & 1)) continue;
    tiles[device] = allocate_device_memory(device, handle->number[kBlock] * handle->number[kBlock] * element_bytes * kTiles);
    if (tiles[device] == nullptr) status = kAllocFailed;
    count_launch(nullptr);
  }
  for (void *memory : tiles)
    if (memory != nullptr) free_device_memory(memory);
  return status;
}

constexpr HandleRules kHandles = {kCublasXt, kNotInitialized, kInvalidValue, kNotInitialized, kAllocFailed};

}  // namespace

GPUMEM_EXPORT int cublasXtCreate(void **out) {
  if (!ready()) return kNotInitialized;
  const int status = create_object(kHandles, out);
  return status != kSuccess ? status : set_number(kHandles, *out, kBlock, kDefaultBlock);
}
GPUMEM_EXPORT int cublasXtDestroy(void *handle) { return destroy_handle(kHandles, handle); }
GPUMEM_EXPORT int cublasXtDeviceSelect(void *pointer, int count, int *devices) {
  Handle *handle = cast(pointer, kCublasXt);
  if (handle == nullptr) return kNotInitialized;
  if (count < 1 || devices == nullptr) return kInvalidValue;
  uint64_t selected = 0;
  for (int i = 0; i < count; i++) {
    if (device_description(devices[i]) == nullptr) return kInvalidValue;
    if (!use_device(devices[i])) return kAllocFailed;
    selected |= uint64_t{1} << devices[i];
  }
  handle->number[kDevices] = selected;
  return kSuccess;
}
GPUMEM_EXPORT int cublasXtSetBlockDim(void *pointer, int block) {
  Handle *handle = cast(pointer, kCublasXt);
  if (handle == nullptr) return kNotInitialized;
  if (block < 1) return kInvalidValue;
  handle->number[kBlock] = static_cast<uint64_t>(block);
  return kSuccess;
}
GPUMEM_EXPORT int cublasXtGetBlockDim(void *handle, int *block) { return get_number(kHandles, handle, kBlock, block); }
GPUMEM_EXPORT int cublasXtSetPinningMemMode(void *handle, int mode) { return set_number(kHandles, handle, kPinning, mode != 0); }
GPUMEM_EXPORT int cublasXtGetPinningMemMode(void *handle, int *mode) { return get_number(kHandles, handle, kPinning, mode); }
// A board is a GPU here: no profile describes a card with two.
GPUMEM_EXPORT int cublasXtGetNumBoards(int count, int *devices, int *boards) {
  if (devices == nullptr || boards == nullptr) return kInvalidValue;
  *boards = count;
  return kSuccess;
}
GPUMEM_EXPORT int cublasXtMaxBoards(int *boards) {
  if (boards == nullptr) return kInvalidValue;
  *boards = visible_device_count();
  return kSuccess;
}
// Shares of work for the CPU need its own BLAS, which is the program's: accepted, and no part is given to it.
GPUMEM_EXPORT int cublasXtSetCpuRoutine(void *pointer, int, int, void *) { return cast(pointer, kCublasXt) != nullptr ? kSuccess : kNotInitialized; }
GPUMEM_EXPORT int cublasXtSetCpuRatio(void *pointer, int, int, float) { return cast(pointer, kCublasXt) != nullptr ? kSuccess : kNotInitialized; }

// Only the handle, the first argument, is looked at.
#define ROUTINE(name, bytes) \
  GPUMEM_EXPORT int cublasXt##name(void *handle) { return run(handle, bytes); }
#define FOUR(name) ROUTINE(S##name, 4) ROUTINE(D##name, 8) ROUTINE(C##name, 8) ROUTINE(Z##name, 16)
#define COMPLEX(name) ROUTINE(C##name, 8) ROUTINE(Z##name, 16)
FOUR(gemm)
FOUR(symm)
FOUR(syrk)
FOUR(syr2k)
FOUR(syrkx)
FOUR(trmm)
FOUR(trsm)
FOUR(spmm)
COMPLEX(hemm)
COMPLEX(herk)
COMPLEX(her2k)
COMPLEX(herkx)
