// SPDX-License-Identifier: Apache-2.0
// cuSPARSE: handles, matrix and vector descriptors, buffer sizes. Products are success by names/cusparse.def.
// Runs in the job's processes.
//
// Note [cuSPARSE buffers]
// cuSPARSE documents no formulae. Rule: one 4-byte entry for each row and each stored element of the sparse operand,
// which is what its load-balanced algorithms partition. The product of two sparse matrices is expected to have
// nnz(A) × nnz(B) ÷ columns(A) products (elements spread evenly), each taking a value and an index. The estimate says so.
#include "estimator/virtual_gpu/libraries/handles.h"

#include <string.h>

using namespace gpumem::virtual_gpu;
using namespace gpumem::virtual_gpu::libraries;

namespace {

enum : int { kSuccess = 0, kNotInitialized = 1, kAllocFailed = 2, kInvalidValue = 3 };
enum Format : int { kCsr = 1, kCsc = 2, kCoo = 3, kBsr = 6, kDense = 100, kDenseVector, kSparseVector, kLegacy, kWork };

const char *const kSonames[] = {"libcusparse.so.12", "libcusparse.so.11", nullptr};
constexpr LibraryVersion kVersion = {kSonames, "cusparseGetProperty", {12, 0, 0}, kInvalidValue};
constexpr HandleRules kHandles = {kCusparse, kNotInitialized, kInvalidValue, kNotInitialized, kAllocFailed};
enum Number { kPointerMode };
constexpr uint32_t kLiving = 0x63537061;

// Every object but the handle: matrices, vectors, old-style descriptors and work descriptors.
struct Object {
  uint32_t magic;
  int format;
  int64_t rows, columns, elements, ld;
  void *offsets, *indices, *values;
  int offset_type, index_type, base, value_type, order;
  int batches;
  int64_t batch_stride, values_stride;
  int numbers[4];  // old-style: type, fill mode, diagonal, base; matrices: attributes 0, 1
};

Object *object_of(const void *pointer) {
  auto *object = static_cast<Object *>(const_cast<void *>(pointer));
  return object != nullptr && object->magic == kLiving ? object : nullptr;
}
Object *make(void **out, int format) {
  if (out == nullptr) return nullptr;
  auto *object = static_cast<Object *>(allocate_zeroed(sizeof(Object)));
  *out = object;
  if (object == nullptr) return nullptr;
  object->magic = kLiving;
  object->format = format;
  object->batches = 1;
  return object;
}
int destroy(const void *pointer) {
  if (pointer == nullptr) return kSuccess;
  Object *object = object_of(pointer);
  if (object == nullptr) return kInvalidValue;
  object->magic = 0;
  release_zeroed(object);
  return kSuccess;
}
int make_sparse(void **out, int format, int64_t rows, int64_t columns, int64_t elements, void *offsets, void *indices, void *values,
                int offset_type, int index_type, int base, int value_type) {
  Object *object = make(out, format);
  if (object == nullptr) return out == nullptr ? kInvalidValue : kAllocFailed;
  object->rows = rows;
  object->columns = columns;
  object->elements = elements;
  object->offsets = offsets;
  object->indices = indices;
  object->values = values;
  object->offset_type = offset_type;
  object->index_type = index_type;
  object->base = base;
  object->value_type = value_type;
  return kSuccess;
}
int make_dense(void **out, int format, int64_t rows, int64_t columns, int64_t ld, void *values, int value_type, int order) {
  Object *object = make(out, format);
  if (object == nullptr) return out == nullptr ? kInvalidValue : kAllocFailed;
  object->rows = rows;
  object->columns = columns;
  object->ld = ld;
  object->values = values;
  object->value_type = value_type;
  object->order = order;
  return kSuccess;
}

template <class T>
void give(T *out, T value) {
  if (out != nullptr) *out = value;
}

void guessed() { note_guess("buffers of sparse linear algebra (cuSPARSE): by the operands' elements, not from the library"); }

int buffer(const void *sparse_pointer, size_t *bytes) {
  const Object *sparse = object_of(sparse_pointer);
  if (sparse == nullptr || bytes == nullptr) return kInvalidValue;
  guessed();
  *bytes = static_cast<size_t>(round_up(4 * static_cast<uint64_t>(sparse->rows + sparse->elements + 1), 512));
  return kSuccess;
}
template <class Size>
int buffer_of(int64_t rows, int64_t elements, Size *bytes) {
  if (bytes == nullptr) return kInvalidValue;
  guessed();
  *bytes = static_cast<Size>(round_up(4 * static_cast<uint64_t>(rows + elements + 1), 512));
  return kSuccess;
}

int64_t expected_products(const Object &a, const Object &b) {
  double products = static_cast<double>(a.elements) * static_cast<double>(b.elements) / static_cast<double>(a.columns > 0 ? a.columns : 1);
  double most = static_cast<double>(a.rows) * static_cast<double>(b.columns);
  return static_cast<int64_t>(products < most ? products : most);
}

}  // namespace

GPUMEM_EXPORT int cusparseCreate(void **handle) { return create_handle(kHandles, handle); }
GPUMEM_EXPORT int cusparseDestroy(void *handle) { return destroy_handle(kHandles, handle); }
GPUMEM_EXPORT int cusparseSetStream(void *handle, Stream stream) { return set_stream(kHandles, handle, stream); }
GPUMEM_EXPORT int cusparseGetStream(void *handle, Stream *stream) { return get_stream(kHandles, handle, stream); }
GPUMEM_EXPORT int cusparseSetPointerMode(void *handle, int mode) { return set_number(kHandles, handle, kPointerMode, mode); }
GPUMEM_EXPORT int cusparseGetPointerMode(void *handle, int *mode) { return get_number(kHandles, handle, kPointerMode, mode); }
GPUMEM_EXPORT int cusparseGetProperty(int part, int *value) { return library_property(kVersion, part, value); }
GPUMEM_EXPORT int cusparseGetVersion(void *, int *version) {
  if (version == nullptr) return kInvalidValue;
  *version = library_version(kVersion, 1000);  // CUSPARSE_VERSION in cusparse.h
  return kSuccess;
}
GPUMEM_EXPORT const char *cusparseGetErrorName(int status) {
  static const char *const kNames[] = {
      "CUSPARSE_STATUS_SUCCESS", "CUSPARSE_STATUS_NOT_INITIALIZED", "CUSPARSE_STATUS_ALLOC_FAILED", "CUSPARSE_STATUS_INVALID_VALUE",
      "CUSPARSE_STATUS_ARCH_MISMATCH", "CUSPARSE_STATUS_MAPPING_ERROR", "CUSPARSE_STATUS_EXECUTION_FAILED", "CUSPARSE_STATUS_INTERNAL_ERROR",
      "CUSPARSE_STATUS_MATRIX_TYPE_NOT_SUPPORTED", "CUSPARSE_STATUS_ZERO_PIVOT", "CUSPARSE_STATUS_NOT_SUPPORTED", "CUSPARSE_STATUS_INSUFFICIENT_RESOURCES"};
  return status >= 0 && status < static_cast<int>(sizeof kNames / sizeof *kNames) ? kNames[status] : "unrecognized error code";
}
GPUMEM_EXPORT const char *cusparseGetErrorString(int status) { return status == 0 ? "success" : cusparseGetErrorName(status); }

// --- Descriptors of the generic interface ---

#define COMPRESSED(name, format)                                                                                                      \
  GPUMEM_EXPORT int cusparseCreate##name(void **out, int64_t rows, int64_t columns, int64_t elements, void *offsets, void *indices,   \
                                         void *values, int offset_type, int index_type, int base, int value_type) {                   \
    return make_sparse(out, format, rows, columns, elements, offsets, indices, values, offset_type, index_type, base, value_type);    \
  }
COMPRESSED(Csr, kCsr)
COMPRESSED(ConstCsr, kCsr)
COMPRESSED(Csc, kCsc)
COMPRESSED(ConstCsc, kCsc)
#define COORDINATES(name)                                                                                                             \
  GPUMEM_EXPORT int cusparseCreate##name(void **out, int64_t rows, int64_t columns, int64_t elements, void *row, void *column,        \
                                         void *values, int index_type, int base, int value_type) {                                    \
    return make_sparse(out, kCoo, rows, columns, elements, row, column, values, index_type, index_type, base, value_type);            \
  }
COORDINATES(Coo)
COORDINATES(ConstCoo)
#define BLOCKED(name)                                                                                                                 \
  GPUMEM_EXPORT int cusparseCreate##name(void **out, int64_t rows, int64_t columns, int64_t elements, int64_t row_block,              \
                                         int64_t column_block, void *offsets, void *indices, void *values, int offset_type,           \
                                         int index_type, int base, int value_type, int order) {                                       \
    int status = make_sparse(out, kBsr, rows * row_block, columns * column_block, elements * row_block * column_block, offsets,       \
                             indices, values, offset_type, index_type, base, value_type);                                             \
    if (status == kSuccess) object_of(*out)->order = order;                                                                           \
    return status;                                                                                                                    \
  }
BLOCKED(Bsr)
BLOCKED(ConstBsr)
#define DENSE(name)                                                                                                                   \
  GPUMEM_EXPORT int cusparseCreate##name##DnMat(void **out, int64_t rows, int64_t columns, int64_t ld, void *values, int type, int order) { \
    return make_dense(out, kDense, rows, columns, ld, values, type, order);                                                           \
  }                                                                                                                                   \
  GPUMEM_EXPORT int cusparseCreate##name##DnVec(void **out, int64_t size, void *values, int type) {                                   \
    return make_dense(out, kDenseVector, size, 1, size, values, type, 0);                                                             \
  }                                                                                                                                   \
  GPUMEM_EXPORT int cusparseCreate##name##SpVec(void **out, int64_t size, int64_t elements, void *indices, void *values, int index_type, \
                                                int base, int value_type) {                                                           \
    return make_sparse(out, kSparseVector, size, 1, elements, nullptr, indices, values, index_type, index_type, base, value_type);    \
  }
DENSE()
DENSE(Const)
GPUMEM_EXPORT int cusparseDestroySpMat(const void *object) { return destroy(object); }
GPUMEM_EXPORT int cusparseDestroySpVec(const void *object) { return destroy(object); }
GPUMEM_EXPORT int cusparseDestroyDnMat(const void *object) { return destroy(object); }
GPUMEM_EXPORT int cusparseDestroyDnVec(const void *object) { return destroy(object); }

GPUMEM_EXPORT int cusparseSpMatGetSize(const void *pointer, int64_t *rows, int64_t *columns, int64_t *elements) {
  const Object *object = object_of(pointer);
  if (object == nullptr) return kInvalidValue;
  give(rows, object->rows), give(columns, object->columns), give(elements, object->elements);
  return kSuccess;
}
GPUMEM_EXPORT int cusparseSpMatGetFormat(const void *pointer, int *format) {
  const Object *object = object_of(pointer);
  if (object == nullptr || format == nullptr) return kInvalidValue;
  *format = object->format;
  return kSuccess;
}
GPUMEM_EXPORT int cusparseSpMatGetIndexBase(const void *pointer, int *base) {
  const Object *object = object_of(pointer);
  if (object == nullptr || base == nullptr) return kInvalidValue;
  *base = object->base;
  return kSuccess;
}
#define VALUES(name)                                                              \
  GPUMEM_EXPORT int cusparse##name##GetValues(void *pointer, void **values) {     \
    const Object *object = object_of(pointer);                                    \
    if (object == nullptr || values == nullptr) return kInvalidValue;             \
    *values = object->values;                                                     \
    return kSuccess;                                                              \
  }                                                                               \
  GPUMEM_EXPORT int cusparse##name##SetValues(void *pointer, void *values) {      \
    Object *object = object_of(pointer);                                          \
    if (object == nullptr) return kInvalidValue;                                  \
    object->values = values;                                                      \
    return kSuccess;                                                              \
  }
VALUES(SpMat)
VALUES(SpVec)
VALUES(DnMat)
VALUES(DnVec)
#define POINTERS(name)                                                                                        \
  GPUMEM_EXPORT int cusparse##name##SetPointers(void *pointer, void *offsets, void *indices, void *values) {  \
    Object *object = object_of(pointer);                                                                      \
    if (object == nullptr) return kInvalidValue;                                                              \
    object->offsets = offsets, object->indices = indices, object->values = values;                            \
    return kSuccess;                                                                                          \
  }
POINTERS(Csr)
POINTERS(Csc)
POINTERS(Coo)
GPUMEM_EXPORT int cusparseSpMatSetAttribute(void *pointer, int attribute, const void *data, size_t bytes) {
  Object *object = object_of(pointer);
  if (object == nullptr || data == nullptr || bytes != sizeof(int) || attribute < 0 || attribute > 1) return kInvalidValue;
  memcpy(&object->numbers[attribute], data, bytes);
  return kSuccess;
}
GPUMEM_EXPORT int cusparseSpMatGetAttribute(const void *pointer, int attribute, void *data, size_t bytes) {
  const Object *object = object_of(pointer);
  if (object == nullptr || data == nullptr || bytes != sizeof(int) || attribute < 0 || attribute > 1) return kInvalidValue;
  memcpy(data, &object->numbers[attribute], bytes);
  return kSuccess;
}
GPUMEM_EXPORT int cusparseCsrSetStridedBatch(void *pointer, int batches, int64_t offsets_stride, int64_t values_stride) {
  Object *object = object_of(pointer);
  if (object == nullptr || batches < 1) return kInvalidValue;
  object->batches = batches, object->batch_stride = offsets_stride, object->values_stride = values_stride;
  return kSuccess;
}
GPUMEM_EXPORT int cusparseCooSetStridedBatch(void *pointer, int batches, int64_t stride) { return cusparseCsrSetStridedBatch(pointer, batches, stride, stride); }
GPUMEM_EXPORT int cusparseDnMatSetStridedBatch(void *pointer, int batches, int64_t stride) { return cusparseCsrSetStridedBatch(pointer, batches, stride, stride); }
GPUMEM_EXPORT int cusparseSpMatGetStridedBatch(const void *pointer, int *batches) {
  const Object *object = object_of(pointer);
  if (object == nullptr) return kInvalidValue;
  give(batches, object->batches);
  return kSuccess;
}
GPUMEM_EXPORT int cusparseDnMatGetStridedBatch(const void *pointer, int *batches, int64_t *stride) {
  const Object *object = object_of(pointer);
  if (object == nullptr) return kInvalidValue;
  give(batches, object->batches), give(stride, object->batch_stride);
  return kSuccess;
}
GPUMEM_EXPORT int cusparseDnMatGet(void *pointer, int64_t *rows, int64_t *columns, int64_t *ld, void **values, int *type, int *order) {
  const Object *object = object_of(pointer);
  if (object == nullptr) return kInvalidValue;
  give(rows, object->rows), give(columns, object->columns), give(ld, object->ld), give(values, object->values);
  give(type, object->value_type), give(order, object->order);
  return kSuccess;
}

// --- Old-style descriptors ---

GPUMEM_EXPORT int cusparseCreateMatDescr(void **out) { return make(out, kLegacy) != nullptr ? kSuccess : kAllocFailed; }
GPUMEM_EXPORT int cusparseDestroyMatDescr(void *object) { return destroy(object); }
#define OLD_NUMBER(name, index)                                        \
  GPUMEM_EXPORT int cusparseSetMat##name(void *pointer, int value) {   \
    Object *object = object_of(pointer);                               \
    if (object == nullptr) return kInvalidValue;                       \
    object->numbers[index] = value;                                    \
    return kSuccess;                                                   \
  }                                                                    \
  GPUMEM_EXPORT int cusparseGetMat##name(const void *pointer) {        \
    const Object *object = object_of(pointer);                         \
    return object != nullptr ? object->numbers[index] : 0;             \
  }
OLD_NUMBER(Type, 0)
OLD_NUMBER(FillMode, 1)
OLD_NUMBER(DiagType, 2)
OLD_NUMBER(IndexBase, 3)
#define WORK_OBJECT(create, destroyer)                                                                    \
  GPUMEM_EXPORT int create(void **out) { return make(out, kWork) != nullptr ? kSuccess : kAllocFailed; }  \
  GPUMEM_EXPORT int destroyer(void *object) { return destroy(object); }
WORK_OBJECT(cusparseCreateBsrsv2Info, cusparseDestroyBsrsv2Info)
WORK_OBJECT(cusparseCreateBsrsm2Info, cusparseDestroyBsrsm2Info)
WORK_OBJECT(cusparseSpSV_createDescr, cusparseSpSV_destroyDescr)
WORK_OBJECT(cusparseSpSM_createDescr, cusparseSpSM_destroyDescr)
WORK_OBJECT(cusparseSpGEMM_createDescr, cusparseSpGEMM_destroyDescr)

// No pivot was zero: position -1.
GPUMEM_EXPORT int cusparseXbsrsv2_zeroPivot(void *, void *, int *position) { return give(position, -1), kSuccess; }
GPUMEM_EXPORT int cusparseXbsrsm2_zeroPivot(void *, void *, int *position) { return give(position, -1), kSuccess; }

#define OLD_BUFFERS(letter)                                                                                                             \
  GPUMEM_EXPORT int cusparse##letter##bsrsv2_bufferSize(void *, int, int, int rows, int elements, const void *, void *, const int *,    \
                                                        const int *, int block, void *, int *bytes) {                                   \
    return buffer_of(int64_t{rows} * block, elements, bytes);                                                                           \
  }                                                                                                                                     \
  GPUMEM_EXPORT int cusparse##letter##bsrsm2_bufferSize(void *, int, int, int, int rows, int n, int elements, const void *, void *,     \
                                                        const int *, const int *, int block, void *, int *bytes) {                      \
    return buffer_of(int64_t{rows} * block * (n > 0 ? n : 1), elements, bytes);                                                         \
  }                                                                                                                                     \
  GPUMEM_EXPORT int cusparse##letter##csrgeam2_bufferSizeExt(void *, int m, int, const void *, const void *, int a, const void *,       \
                                                             const int *, const int *, const void *, const void *, int b, const void *, \
                                                             const int *, const int *, const void *, const void *, const int *,         \
                                                             const int *, size_t *bytes) {                                              \
    return buffer_of(m, int64_t{a} + b, bytes);                                                                                         \
  }
OLD_BUFFERS(S)
OLD_BUFFERS(D)
OLD_BUFFERS(C)
OLD_BUFFERS(Z)
GPUMEM_EXPORT int cusparseXcoosort_bufferSizeExt(void *, int m, int, int elements, const int *, const int *, size_t *bytes) {
  return buffer_of(m, 2 * int64_t{elements}, bytes);
}
GPUMEM_EXPORT int cusparseXcsrsort_bufferSizeExt(void *, int m, int, int elements, const int *, const int *, size_t *bytes) {
  return buffer_of(m, 2 * int64_t{elements}, bytes);
}
// The sum of two sparse matrices has at most the elements of both.
GPUMEM_EXPORT int cusparseXcsrgeam2Nnz(void *, int, int, const void *, int a, const int *, const int *, const void *, int b, const int *,
                                       const int *, const void *, int *, int *total, void *) {
  note_guess("the sum of two sparse matrices: taken to have the elements of both");
  return give(total, a + b), kSuccess;
}

// --- Sizes of the generic interface ---

GPUMEM_EXPORT int cusparseSpMV_bufferSize(void *, int, const void *, const void *a, const void *, const void *, void *, int, int, size_t *bytes) {
  return buffer(a, bytes);
}
GPUMEM_EXPORT int cusparseSpMM_bufferSize(void *, int, int, const void *, const void *a, const void *, const void *, void *, int, int,
                                          size_t *bytes) {
  return buffer(a, bytes);
}
GPUMEM_EXPORT int cusparseSpSV_bufferSize(void *, int, const void *, const void *a, const void *, void *, int, int, void *, size_t *bytes) {
  return buffer(a, bytes);
}
GPUMEM_EXPORT int cusparseSpSM_bufferSize(void *, int, int, const void *, const void *a, const void *, void *, int, int, void *, size_t *bytes) {
  return buffer(a, bytes);
}
GPUMEM_EXPORT int cusparseSDDMM_bufferSize(void *, int, int, const void *, const void *, const void *, const void *, void *c, int, int,
                                           size_t *bytes) {
  return buffer(c, bytes);
}
GPUMEM_EXPORT int cusparseSparseToDense_bufferSize(void *, const void *a, void *, int, size_t *bytes) { return buffer(a, bytes); }

GPUMEM_EXPORT int cusparseSpGEMM_workEstimation(void *, int, int, const void *, const void *a, const void *b, const void *, void *c, int,
                                                int, void *, size_t *bytes, void *) {
  Object *product = object_of(c);
  const Object *left = object_of(a), *right = object_of(b);
  if (product == nullptr || left == nullptr || right == nullptr) return kInvalidValue;
  product->rows = left->rows;
  product->columns = right->columns;
  return buffer_of(left->rows, left->elements, bytes);
}
GPUMEM_EXPORT int cusparseSpGEMM_compute(void *handle, int, int, const void *, const void *a, const void *b, const void *, void *c, int type,
                                         int, void *, size_t *bytes, void *work) {
  Handle *found = cast(handle, kCusparse);
  Object *product = object_of(c);
  const Object *left = object_of(a), *right = object_of(b);
  if (found == nullptr || product == nullptr || left == nullptr || right == nullptr || bytes == nullptr) return kInvalidValue;
  guessed();
  int64_t products = expected_products(*left, *right);
  if (work == nullptr) {
    uint64_t value = type == 5 ? 16 : type == 1 || type == 4 ? 8 : 4;
    *bytes = static_cast<size_t>(round_up(static_cast<uint64_t>(products) * (value + 4), 512));
    if (products > 0) return kSuccess;
  }
  product->elements = products;
  count_launch(found->stream);
  return kSuccess;
}
