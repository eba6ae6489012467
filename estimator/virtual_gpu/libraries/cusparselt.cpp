// SPDX-License-Identifier: Apache-2.0
// cuSPARSELt (2:4 sparse products): handles, descriptors, plans and sizes. What computes: names/cusparselt.def. In the job's processes.
//
// All its objects are structs of the caller's with at least 512 bytes (cusparseLt.h, 0.6 to 0.8), so they are kept there.
// Destroying one leaves nothing behind.
//
// Note [Sizes of 2:4 matrices]
// Compressed: half of the elements and, of each kept one, two bits of place (cuSPARSELt documentation, "Structured sparsity";
// PyTorch computes the same 9/16 of 2-byte and 10/16 of 1-byte elements). Compressing needs a buffer and a split product a
// workspace that are not documented: the buffer is taken as large as the result, the workspace as 0 (the default algorithm
// splits nothing). The estimate says so.
#include <string.h>

#include "estimator/virtual_gpu/libraries/handles.h"

using namespace gpumem::virtual_gpu;
using namespace gpumem::virtual_gpu::libraries;

namespace {

enum : int { kSuccess = 0, kNotInitialized = 1, kInvalidValue = 3, kArchMismatch = 4 };  // cusparseStatus_t

const char *const kSonames[] = {"libcusparseLt.so.0", nullptr};

enum Kind : uint32_t { kHandle = 0x634c7401, kMatrix, kProduct, kSelection, kPlan };

// Attributes by their number; no object has more than 20.
constexpr int kMaxAttributes = 24;
struct Object {
  uint32_t kind;
  int32_t value_type;  // cudaDataType
  int64_t rows, columns;
  uint64_t attributes[kMaxAttributes];
};
static_assert(sizeof(Object) <= 512, "fits into cusparseLt's opaque structs");

template <class Pointer>
Object *living(Pointer pointer, Kind kind) {
  auto *object = static_cast<Object *>(const_cast<void *>(static_cast<const void *>(pointer)));
  return object != nullptr && object->kind == kind ? object : nullptr;
}

int init(const void *handle, void *pointer, Kind kind, Object **made) {
  if (living(handle, kHandle) == nullptr) return kNotInitialized;
  if (pointer == nullptr) return kInvalidValue;
  *made = static_cast<Object *>(pointer);
  memset(*made, 0, sizeof(Object));
  (*made)->kind = kind;
  return kSuccess;
}

int destroy(const void *pointer, Kind kind) {
  Object *object = living(pointer, kind);
  if (object == nullptr) return kInvalidValue;
  object->kind = 0;
  return kSuccess;
}

int set(const void *pointer, Kind kind, int attribute, const void *data, size_t size) {
  Object *object = living(pointer, kind);
  if (object == nullptr || data == nullptr || attribute < 0 || attribute >= kMaxAttributes || size > sizeof(uint64_t)) return kInvalidValue;
  object->attributes[attribute] = 0;
  memcpy(&object->attributes[attribute], data, size);
  return kSuccess;
}

int get(const void *pointer, Kind kind, int attribute, void *data, size_t size) {
  const Object *object = living(pointer, kind);
  if (object == nullptr || data == nullptr || attribute < 0 || attribute >= kMaxAttributes || size > sizeof(uint64_t)) return kInvalidValue;
  memcpy(data, &object->attributes[attribute], size);
  return kSuccess;
}

uint64_t value_bytes(int type) {
  switch (type) {
    case 0: return 4;                               // CUDA_R_32F
    case 3: case 8: case 28: case 29: return 1;     // CUDA_R_8I, _8U, _8F_E4M3, _8F_E5M2
    case 33: return 1;                              // CUDA_R_4F_E2M1: two of them
    default: return 2;                              // CUDA_R_16F, CUDA_R_16BF
  }
}

int compressed_size(const Object *matrix, size_t *bytes, size_t *buffer_bytes) {
  if (matrix == nullptr || bytes == nullptr) return kInvalidValue;
  const uint64_t elements = static_cast<uint64_t>(matrix->rows) * static_cast<uint64_t>(matrix->columns);
  *bytes = static_cast<size_t>(elements / 2 * value_bytes(matrix->value_type) + elements / 8);
  if (buffer_bytes != nullptr) *buffer_bytes = *bytes;
  note_guess("2:4 sparse products (cuSPARSELt): buffers by a rule, not from the library");
  return kSuccess;
}

int describe(const void *handle, void *pointer, int64_t rows, int64_t columns, int value_type) {
  Object *matrix = nullptr;
  const int status = init(handle, pointer, kMatrix, &matrix);
  if (status != kSuccess) return status;
  if (rows <= 0 || columns <= 0) return kInvalidValue;
  matrix->rows = rows;
  matrix->columns = columns;
  matrix->value_type = value_type;
  matrix->attributes[0] = 1;  // CUSPARSELT_MAT_NUM_BATCHES
  return kSuccess;
}

constexpr LibraryVersion kVersion = {kSonames, "cusparseLtGetProperty", {0, 6, 0}, kInvalidValue};

}  // namespace

GPUMEM_EXPORT int cusparseLtInit(void *handle) {
  if (handle == nullptr) return kInvalidValue;
  if (!ready() || !use_device(current_device())) return kNotInitialized;
  const book::DeviceDescription *device = current_device_description();
  if (device == nullptr || device->compute_major < 8) return kArchMismatch;  // sparse tensor cores came with Ampere
  auto *object = static_cast<Object *>(handle);
  memset(object, 0, sizeof *object);
  object->kind = kHandle;
  return kSuccess;
}
GPUMEM_EXPORT int cusparseLtDestroy(const void *handle) { return destroy(handle, kHandle); }

GPUMEM_EXPORT int cusparseLtGetVersion(const void *handle, int *version) {
  if (living(handle, kHandle) == nullptr) return kNotInitialized;
  if (version == nullptr) return kInvalidValue;
  *version = library_version(kVersion, 1000);  // CUSPARSELT_VERSION
  return kSuccess;
}
GPUMEM_EXPORT int cusparseLtGetProperty(int part, int *value) { return library_property(kVersion, part, value); }
GPUMEM_EXPORT const char *cusparseLtGetErrorName(int status) {
  using Function = const char *(*)(int);
  auto real = reinterpret_cast<Function>(loaded_function(kSonames, "cusparseLtGetErrorName"));
  return real != nullptr ? real(status) : status == 0 ? "CUSPARSE_STATUS_SUCCESS" : "CUSPARSE_STATUS_INTERNAL_ERROR";
}
GPUMEM_EXPORT const char *cusparseLtGetErrorString(int status) {
  using Function = const char *(*)(int);
  auto real = reinterpret_cast<Function>(loaded_function(kSonames, "cusparseLtGetErrorString"));
  return real != nullptr ? real(status) : status == 0 ? "success" : "an error of cuSPARSELt";
}

GPUMEM_EXPORT int cusparseLtDenseDescriptorInit(const void *handle, void *matrix, int64_t rows, int64_t columns, int64_t, uint32_t,
                                                int value_type, int) {
  return describe(handle, matrix, rows, columns, value_type);
}
GPUMEM_EXPORT int cusparseLtStructuredDescriptorInit(const void *handle, void *matrix, int64_t rows, int64_t columns, int64_t, uint32_t,
                                                     int value_type, int, int) {
  return describe(handle, matrix, rows, columns, value_type);
}
GPUMEM_EXPORT int cusparseLtMatDescriptorDestroy(const void *matrix) { return destroy(matrix, kMatrix); }
GPUMEM_EXPORT int cusparseLtMatDescSetAttribute(const void *, void *matrix, int attribute, const void *data, size_t size) {
  return set(matrix, kMatrix, attribute, data, size);
}
GPUMEM_EXPORT int cusparseLtMatDescGetAttribute(const void *, const void *matrix, int attribute, void *data, size_t size) {
  return get(matrix, kMatrix, attribute, data, size);
}

GPUMEM_EXPORT int cusparseLtMatmulDescriptorInit(const void *handle, void *product, int, int, const void *a, const void *b, const void *c,
                                                 const void *d, int) {
  Object *made = nullptr;
  const int status = init(handle, product, kProduct, &made);
  if (status != kSuccess) return status;
  const Object *left = living(a, kMatrix);
  if (left == nullptr || living(b, kMatrix) == nullptr || living(c, kMatrix) == nullptr || living(d, kMatrix) == nullptr) return kInvalidValue;
  made->rows = left->rows;  // of the sparse matrix, which is usually the left one
  made->columns = left->columns;
  made->value_type = left->value_type;
  return kSuccess;
}
GPUMEM_EXPORT int cusparseLtMatmulDescSetAttribute(const void *, void *product, int attribute, const void *data, size_t size) {
  return set(product, kProduct, attribute, data, size);
}
GPUMEM_EXPORT int cusparseLtMatmulDescGetAttribute(const void *, const void *product, int attribute, void *data, size_t size) {
  return get(product, kProduct, attribute, data, size);
}

GPUMEM_EXPORT int cusparseLtMatmulAlgSelectionInit(const void *handle, void *selection, const void *product, int) {
  Object *made = nullptr;
  const int status = init(handle, selection, kSelection, &made);
  if (status != kSuccess) return status;
  if (living(product, kProduct) == nullptr) return kInvalidValue;
  made->attributes[1] = 1;  // CUSPARSELT_MATMUL_ALG_CONFIG_MAX_ID: one algorithm
  made->attributes[2] = 5;  // CUSPARSELT_MATMUL_SEARCH_ITERATIONS, the documented default
  made->attributes[3] = 1;  // CUSPARSELT_MATMUL_SPLIT_K
  return kSuccess;
}
GPUMEM_EXPORT int cusparseLtMatmulAlgSelectionDestroy(const void *selection) { return destroy(selection, kSelection); }
GPUMEM_EXPORT int cusparseLtMatmulAlgSetAttribute(const void *, void *selection, int attribute, const void *data, size_t size) {
  return attribute == 1 ? static_cast<int>(kInvalidValue) : set(selection, kSelection, attribute, data, size);
}
GPUMEM_EXPORT int cusparseLtMatmulAlgGetAttribute(const void *, const void *selection, int attribute, void *data, size_t size) {
  return get(selection, kSelection, attribute, data, size);
}

GPUMEM_EXPORT int cusparseLtMatmulPlanInit(const void *handle, void *plan, const void *product, const void *selection) {
  Object *made = nullptr;
  const int status = init(handle, plan, kPlan, &made);
  if (status != kSuccess) return status;
  const Object *of = living(product, kProduct);
  if (of == nullptr || living(selection, kSelection) == nullptr) return kInvalidValue;
  made->rows = of->rows;
  made->columns = of->columns;
  made->value_type = of->value_type;
  return kSuccess;
}
GPUMEM_EXPORT int cusparseLtMatmulPlanDestroy(const void *plan) { return destroy(plan, kPlan); }
GPUMEM_EXPORT int cusparseLtMatmulGetWorkspace(const void *, const void *plan, size_t *bytes) {
  if (living(plan, kPlan) == nullptr || bytes == nullptr) return kInvalidValue;
  note_guess("2:4 sparse products (cuSPARSELt): buffers by a rule, not from the library");
  *bytes = 0;
  return kSuccess;
}

GPUMEM_EXPORT int cusparseLtSpMMACompressedSize(const void *, const void *plan, size_t *bytes, size_t *buffer_bytes) {
  return compressed_size(living(plan, kPlan), bytes, buffer_bytes);
}
GPUMEM_EXPORT int cusparseLtSpMMACompressedSize2(const void *, const void *matrix, size_t *bytes, size_t *buffer_bytes) {
  return compressed_size(living(matrix, kMatrix), bytes, buffer_bytes);
}
// Zero means that the matrix has the 2:4 pattern, as one that was pruned has.
GPUMEM_EXPORT int cusparseLtSpMMAPruneCheck(const void *, const void *product, const void *, int *invalid, Stream stream) {
  if (living(product, kProduct) == nullptr) return kInvalidValue;
  count_launch(stream);
  zero_result(invalid, sizeof *invalid);
  return kSuccess;
}
GPUMEM_EXPORT int cusparseLtSpMMAPruneCheck2(const void *, const void *matrix, int, int, const void *, int *invalid, Stream stream) {
  if (living(matrix, kMatrix) == nullptr) return kInvalidValue;
  count_launch(stream);
  zero_result(invalid, sizeof *invalid);
  return kSuccess;
}
