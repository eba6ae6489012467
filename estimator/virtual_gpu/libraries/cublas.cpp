// SPDX-License-Identifier: Apache-2.0
// cuBLAS: handles with their modes, versions, transfers, and the few routines whose result the host reads.
// Everything else that computes is success by names/cublas.def. Runs in the job's processes.
//
// Workspaces: PyTorch allocates them itself and passes them with cublasSetWorkspace, so they are in its own allocator.
// What a handle takes behind the program's back belongs to the context of the GPU's profile.
#include "estimator/virtual_gpu/libraries/handles.h"

using namespace gpumem::virtual_gpu;
using namespace gpumem::virtual_gpu::libraries;

namespace {

enum : int { kSuccess = 0, kNotInitialized = 1, kAllocFailed = 3, kInvalidValue = 7 };
enum Number { kPointerMode, kMathMode, kAtomicsMode, kSmCountTarget, kEmulation, kWorkspaceBytes };  // in Handle::number

const char *const kSonames[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11", nullptr};

int get_number(const void *pointer, Number which, int *value) {
  Handle *handle = cast(pointer, kCublas);
  if (handle == nullptr) return kNotInitialized;
  if (value == nullptr) return kInvalidValue;
  *value = static_cast<int>(handle->number[which]);
  return kSuccess;
}

int set_number(const void *pointer, Number which, int value) {
  Handle *handle = cast(pointer, kCublas);
  if (handle == nullptr) return kNotInitialized;
  handle->number[which] = static_cast<uint64_t>(value);
  return kSuccess;
}

int computed(const void *pointer) {
  Handle *handle = cast(pointer, kCublas);
  if (handle == nullptr) return kNotInitialized;
  count_launch(handle->stream);
  return kSuccess;
}

// Scalars go to host or device memory by the pointer mode; virtual device memory is host memory, so zero either way.
int scalar(const void *pointer, void *result, size_t bytes) {
  int status = computed(pointer);
  if (status != kSuccess) return status;
  if (result == nullptr) return kInvalidValue;
  zero_result(result, bytes);
  return kSuccess;
}

// Bytes of a cudaDataType, for results of the Ex functions. The largest for types that we do not know.
size_t data_type_bytes(int type) {
  switch (type) {
    case 2: case 14: return 2;                  // CUDA_R_16F, CUDA_R_16BF
    case 0: case 10: case 12: return 4;         // CUDA_R_32F, CUDA_R_32I, CUDA_R_32U
    case 1: case 4: case 24: case 26: return 8; // CUDA_R_64F, CUDA_C_32F, CUDA_R_64I, CUDA_R_64U
    case 5: return 16;                          // CUDA_C_64F
    default: return 4;
  }
}

// Strided copies as cublasSetMatrix and friends define them: columns of `rows` elements.
int copy_matrix(int64_t rows, int64_t columns, int64_t element, const void *from, int64_t from_ld, void *to, int64_t to_ld) {
  if (rows < 0 || columns < 0 || element <= 0 || from_ld < 1 || to_ld < 1) return kInvalidValue;
  if (rows == 0 || columns == 0) return kSuccess;
  if (from == nullptr || to == nullptr) return kInvalidValue;
  size_t column = static_cast<size_t>(rows * element);
  if (from_ld == rows && to_ld == rows) {
    copy_contents(to, from, column * static_cast<size_t>(columns));
    return kSuccess;
  }
  for (int64_t i = 0; i < columns; i++)
    copy_contents(static_cast<char *>(to) + i * to_ld * element, static_cast<const char *>(from) + i * from_ld * element, column);
  return kSuccess;
}

// A vector with increments is a matrix of one row.
int copy_vector(int64_t n, int64_t element, const void *from, int64_t from_increment, void *to, int64_t to_increment) {
  if (from_increment == 1 && to_increment == 1) return copy_matrix(n, 1, element, from, n > 0 ? n : 1, to, n > 0 ? n : 1);
  return copy_matrix(1, n, element, from, from_increment, to, to_increment);
}

struct StatusWord {
  int status;
  const char *name;
  const char *text;
};
const StatusWord kStatusWords[] = {
    {0, "CUBLAS_STATUS_SUCCESS", "success"},
    {1, "CUBLAS_STATUS_NOT_INITIALIZED", "the library was not initialized"},
    {3, "CUBLAS_STATUS_ALLOC_FAILED", "the resource allocation failed"},
    {7, "CUBLAS_STATUS_INVALID_VALUE", "an unsupported value or parameter was passed to the function"},
    {8, "CUBLAS_STATUS_ARCH_MISMATCH", "the function requires a feature absent from the device architecture"},
    {11, "CUBLAS_STATUS_MAPPING_ERROR", "an access to GPU memory space failed"},
    {13, "CUBLAS_STATUS_EXECUTION_FAILED", "the function failed to launch on the GPU"},
    {14, "CUBLAS_STATUS_INTERNAL_ERROR", "an internal operation failed"},
    {15, "CUBLAS_STATUS_NOT_SUPPORTED", "the functionality requested is not supported"},
    {16, "CUBLAS_STATUS_LICENSE_ERROR", "the functionality requested requires a license"},
};

constexpr LibraryVersion kVersion = {kSonames, "cublasGetProperty", {12, 0, 0}, kInvalidValue};
constexpr HandleRules kHandles = {kCublas, kNotInitialized, kInvalidValue, kNotInitialized, kAllocFailed};

}  // namespace

GPUMEM_EXPORT int cublasCreate_v2(void **handle) { return create_handle(kHandles, handle); }
GPUMEM_EXPORT int cublasDestroy_v2(void *handle) { return destroy_handle(kHandles, handle); }

GPUMEM_EXPORT int cublasGetProperty(int part, int *value) { return library_property(kVersion, part, value); }
GPUMEM_EXPORT int cublasGetVersion_v2(void *, int *version) {
  if (version == nullptr) return kInvalidValue;
  *version = library_version(kVersion, 10000);  // CUBLAS_VERSION in cublas_api.h
  return kSuccess;
}
GPUMEM_EXPORT size_t cublasGetCudartVersion() {
  using Function = size_t (*)();
  if (auto real = reinterpret_cast<Function>(loaded_function(kSonames, "cublasGetCudartVersion"))) return real();
  return 12000;
}

GPUMEM_EXPORT const char *cublasGetStatusName(int status) {
  for (const StatusWord &word : kStatusWords)
    if (word.status == status) return word.name;
  return "<unknown>";
}
GPUMEM_EXPORT const char *cublasGetStatusString(int status) {
  for (const StatusWord &word : kStatusWords)
    if (word.status == status) return word.text;
  return "<unknown>";
}

GPUMEM_EXPORT int cublasSetStream_v2(void *handle, Stream stream) {
  Handle *found = cast(handle, kCublas);
  if (found == nullptr) return kNotInitialized;
  found->stream = stream;
  found->data = nullptr;  // the real one goes back to its own workspace too
  found->number[kWorkspaceBytes] = 0;
  return kSuccess;
}
GPUMEM_EXPORT int cublasGetStream_v2(void *handle, Stream *stream) { return get_stream(kHandles, handle, stream); }
GPUMEM_EXPORT int cublasSetWorkspace_v2(void *handle, void *workspace, size_t bytes) {
  Handle *found = cast(handle, kCublas);
  if (found == nullptr) return kNotInitialized;
  if (workspace == nullptr && bytes != 0) return kInvalidValue;
  found->data = workspace;
  found->number[kWorkspaceBytes] = bytes;
  return kSuccess;
}

GPUMEM_EXPORT int cublasGetPointerMode_v2(void *handle, int *mode) { return get_number(handle, kPointerMode, mode); }
GPUMEM_EXPORT int cublasSetPointerMode_v2(void *handle, int mode) { return set_number(handle, kPointerMode, mode); }
GPUMEM_EXPORT int cublasGetAtomicsMode(void *handle, int *mode) { return get_number(handle, kAtomicsMode, mode); }
GPUMEM_EXPORT int cublasSetAtomicsMode(void *handle, int mode) { return set_number(handle, kAtomicsMode, mode); }
GPUMEM_EXPORT int cublasGetMathMode(void *handle, int *mode) { return get_number(handle, kMathMode, mode); }
GPUMEM_EXPORT int cublasSetMathMode(void *handle, int mode) { return set_number(handle, kMathMode, mode); }
GPUMEM_EXPORT int cublasGetSmCountTarget(void *handle, int *count) { return get_number(handle, kSmCountTarget, count); }
GPUMEM_EXPORT int cublasSetSmCountTarget(void *handle, int count) { return set_number(handle, kSmCountTarget, count); }
GPUMEM_EXPORT int cublasGetEmulationStrategy(void *handle, int *strategy) { return get_number(handle, kEmulation, strategy); }
GPUMEM_EXPORT int cublasSetEmulationStrategy(void *handle, int strategy) { return set_number(handle, kEmulation, strategy); }
GPUMEM_EXPORT int cublasLoggerConfigure(int, int, int, const char *) { return kSuccess; }
GPUMEM_EXPORT int cublasSetLoggerCallback(void *) { return kSuccess; }
GPUMEM_EXPORT int cublasGetLoggerCallback(void **callback) {
  if (callback == nullptr) return kInvalidValue;
  *callback = nullptr;
  return kSuccess;
}

#define MATRIX(name, Int)                                                                                          \
  GPUMEM_EXPORT int name(Int rows, Int columns, Int element, const void *from, Int from_ld, void *to, Int to_ld) { \
    return copy_matrix(rows, columns, element, from, from_ld, to, to_ld);                                          \
  }
#define MATRIX_ASYNC(name, Int)                                                                                            \
  GPUMEM_EXPORT int name(Int rows, Int columns, Int element, const void *from, Int from_ld, void *to, Int to_ld, Stream) { \
    return copy_matrix(rows, columns, element, from, from_ld, to, to_ld);                                                  \
  }
#define VECTOR(name, Int)                                                                                                   \
  GPUMEM_EXPORT int name(Int n, Int element, const void *from, Int from_increment, void *to, Int to_increment) {            \
    return copy_vector(n, element, from, from_increment, to, to_increment);                                                 \
  }
#define VECTOR_ASYNC(name, Int)                                                                                             \
  GPUMEM_EXPORT int name(Int n, Int element, const void *from, Int from_increment, void *to, Int to_increment, Stream) {    \
    return copy_vector(n, element, from, from_increment, to, to_increment);                                                 \
  }
MATRIX(cublasSetMatrix, int)
MATRIX(cublasSetMatrix_64, int64_t)
MATRIX(cublasGetMatrix, int)
MATRIX(cublasGetMatrix_64, int64_t)
MATRIX_ASYNC(cublasSetMatrixAsync, int)
MATRIX_ASYNC(cublasSetMatrixAsync_64, int64_t)
MATRIX_ASYNC(cublasGetMatrixAsync, int)
MATRIX_ASYNC(cublasGetMatrixAsync_64, int64_t)
VECTOR(cublasSetVector, int)
VECTOR(cublasSetVector_64, int64_t)
VECTOR(cublasGetVector, int)
VECTOR(cublasGetVector_64, int64_t)
VECTOR_ASYNC(cublasSetVectorAsync, int)
VECTOR_ASYNC(cublasSetVectorAsync_64, int64_t)
VECTOR_ASYNC(cublasGetVectorAsync, int)
VECTOR_ASYNC(cublasGetVectorAsync_64, int64_t)

// Routines with a scalar result, of `bytes` bytes.
#define ONE_VECTOR(name, Int, bytes) \
  GPUMEM_EXPORT int name(void *handle, Int, const void *, Int, void *result) { return scalar(handle, result, bytes); }
#define TWO_VECTORS(name, Int, bytes) \
  GPUMEM_EXPORT int name(void *handle, Int, const void *, Int, const void *, Int, void *result) { return scalar(handle, result, bytes); }
#define BOTH_ONE(name, bytes) ONE_VECTOR(name##_v2, int, bytes) ONE_VECTOR(name##_v2_64, int64_t, bytes)
#define BOTH_TWO(name, bytes) TWO_VECTORS(name##_v2, int, bytes) TWO_VECTORS(name##_v2_64, int64_t, bytes)
#define INDEX(name) ONE_VECTOR(name##_v2, int, 4) ONE_VECTOR(name##_v2_64, int64_t, 8)
BOTH_ONE(cublasSnrm2, 4) BOTH_ONE(cublasDnrm2, 8) BOTH_ONE(cublasScnrm2, 4) BOTH_ONE(cublasDznrm2, 8)
BOTH_ONE(cublasSasum, 4) BOTH_ONE(cublasDasum, 8) BOTH_ONE(cublasScasum, 4) BOTH_ONE(cublasDzasum, 8)
BOTH_TWO(cublasSdot, 4) BOTH_TWO(cublasDdot, 8) BOTH_TWO(cublasCdotu, 8) BOTH_TWO(cublasCdotc, 8)
BOTH_TWO(cublasZdotu, 16) BOTH_TWO(cublasZdotc, 16)
INDEX(cublasIsamax) INDEX(cublasIdamax) INDEX(cublasIcamax) INDEX(cublasIzamax)
INDEX(cublasIsamin) INDEX(cublasIdamin) INDEX(cublasIcamin) INDEX(cublasIzamin)

#define ONE_EX(name, Int)                                                                          \
  GPUMEM_EXPORT int name(void *handle, Int, const void *, int, Int, void *result, int type, int) { \
    return scalar(handle, result, data_type_bytes(type));                                          \
  }
#define TWO_EX(name, Int)                                                                                                 \
  GPUMEM_EXPORT int name(void *handle, Int, const void *, int, Int, const void *, int, Int, void *result, int type, int) { \
    return scalar(handle, result, data_type_bytes(type));                                                                 \
  }
#define INDEX_EX(name, Int) \
  GPUMEM_EXPORT int name(void *handle, Int, const void *, int, Int, Int *result) { return scalar(handle, result, sizeof *result); }
ONE_EX(cublasNrm2Ex, int) ONE_EX(cublasNrm2Ex_64, int64_t) ONE_EX(cublasAsumEx, int) ONE_EX(cublasAsumEx_64, int64_t)
TWO_EX(cublasDotEx, int) TWO_EX(cublasDotEx_64, int64_t) TWO_EX(cublasDotcEx, int) TWO_EX(cublasDotcEx_64, int64_t)
INDEX_EX(cublasIamaxEx, int) INDEX_EX(cublasIamaxEx_64, int64_t) INDEX_EX(cublasIaminEx, int) INDEX_EX(cublasIaminEx_64, int64_t)

// Batched factorizations say for each matrix whether it was singular: none is.
#define INFO(letter)                                                                                                             \
  GPUMEM_EXPORT int cublas##letter##getrfBatched(void *handle, int, void *const *, int, int *, int *info, int batch) {           \
    if (batch > 0) zero_result(info, sizeof(int) * static_cast<size_t>(batch));                                                  \
    return computed(handle);                                                                                                     \
  }                                                                                                                              \
  GPUMEM_EXPORT int cublas##letter##getriBatched(void *handle, int, const void *const *, int, const int *, void *const *, int,   \
                                                 int *info, int batch) {                                                         \
    if (batch > 0) zero_result(info, sizeof(int) * static_cast<size_t>(batch));                                                  \
    return computed(handle);                                                                                                     \
  }                                                                                                                              \
  GPUMEM_EXPORT int cublas##letter##matinvBatched(void *handle, int, const void *const *, int, void *const *, int, int *info,    \
                                                  int batch) {                                                                   \
    if (batch > 0) zero_result(info, sizeof(int) * static_cast<size_t>(batch));                                                  \
    return computed(handle);                                                                                                     \
  }                                                                                                                              \
  GPUMEM_EXPORT int cublas##letter##getrsBatched(void *handle, int, int, int, const void *const *, int, const int *,             \
                                                 void *const *, int, int *info, int) {                                           \
    if (info != nullptr) *info = 0;                                                                                              \
    return computed(handle);                                                                                                     \
  }                                                                                                                              \
  GPUMEM_EXPORT int cublas##letter##geqrfBatched(void *handle, int, int, void *const *, int, void *const *, int *info, int) {    \
    if (info != nullptr) *info = 0;                                                                                              \
    return computed(handle);                                                                                                     \
  }                                                                                                                              \
  GPUMEM_EXPORT int cublas##letter##gelsBatched(void *handle, int, int, int, int, void *const *, int, void *const *, int,        \
                                                int *info, int *device_info, int batch) {                                        \
    if (info != nullptr) *info = 0;                                                                                              \
    if (batch > 0) zero_result(device_info, sizeof(int) * static_cast<size_t>(batch));                                           \
    return computed(handle);                                                                                                     \
  }
INFO(S) INFO(D) INFO(C) INFO(Z)
