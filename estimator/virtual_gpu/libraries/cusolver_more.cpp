// SPDX-License-Identifier: Apache-2.0
// cuSOLVER for several GPUs (Mg), its sparse solvers (Sp) and refactorization (Rf). Runs in the job's processes.
//
// Note [Sparse factors]
// Sp and Rf keep factors of their own on the device, whose fill-in depends on the pattern. Sp: assumed eight times the
// matrix's elements, for the time of the call; Rf is told the factors' sizes and keeps them, with their indices, until
// it is destroyed. Mg: of each device a panel of its columns' blocks, as the dense solvers (cusolver.cpp). The estimate says
// that these are rules. Functions that end in Host compute on the CPU and are not answered: their names are reported.
#include "estimator/virtual_gpu/libraries/handles.h"

using namespace gpumem::virtual_gpu;
using namespace gpumem::virtual_gpu::libraries;

namespace {

enum : int { kSuccess = 0, kNotInitialized = 1, kAllocFailed = 2, kInvalidValue = 3 };
constexpr uint64_t kFillIn = 8;
constexpr int64_t kPanel = 256;

void guessed() { note_guess("sparse and multi-GPU linear algebra (cuSOLVER Sp, Rf, Mg): device memory by a rule, not from the library"); }

constexpr HandleRules rules(HandleKind kind) { return {kind, kNotInitialized, kInvalidValue, kNotInitialized, kAllocFailed}; }
constexpr HandleRules kSpHandles = rules(kCusolverSp), kSpInfos = rules(kCusolverSpInfo), kRfHandles = rules(kCusolverRf),
                      kMgHandles = rules(kCusolverMg), kMgObjects = rules(kCusolverMgObject);

// With the factors that it keeps on the device.
int destroy(const HandleRules &of, void *pointer) {
  Handle *handle = cast(pointer, of.kind);
  if (handle != nullptr && handle->data != nullptr) free_device_memory(handle->data);
  return destroy_handle(of, pointer);
}

// --- Sp ---

// A direct solution: `singularity` is -1 where the matrix is regular.
int solve_sparse(void *pointer, int elements, uint64_t element_bytes, int *singularity) {
  const Handle *handle = cast(pointer, kCusolverSp);
  if (handle == nullptr) return kNotInitialized;
  if (elements < 0) return kInvalidValue;
  guessed();
  void *factors = allocate_device_memory(current_device(), (static_cast<uint64_t>(elements) + 1) * kFillIn * (element_bytes + sizeof(int)));
  if (factors == nullptr) return kAllocFailed;
  count_launch(handle->stream);
  free_device_memory(factors);
  if (singularity != nullptr) *singularity = -1;
  return kSuccess;
}

// --- Rf. handle->data: the factors; numbers: below. ---

enum Number { kFormat, kDiagonal, kFactorization, kSolve, kFastReset, kUnits };

int set_up(void *pointer, uint64_t rows, uint64_t elements, uint64_t batch) {
  Handle *handle = cast(pointer, kCusolverRf);
  if (handle == nullptr) return kNotInitialized;
  guessed();
  if (handle->data != nullptr) free_device_memory(handle->data);
  const uint64_t values = elements * batch * sizeof(double), indices = (elements + 3 * (rows + 1)) * sizeof(int);
  handle->data = allocate_device_memory(current_device(), values + indices);
  return handle->data != nullptr ? kSuccess : kAllocFailed;
}

int work(void *pointer) {
  const Handle *handle = cast(pointer, kCusolverRf);
  if (handle == nullptr) return kNotInitialized;
  if (handle->data == nullptr) return kInvalidValue;  // nothing was set up
  count_launch(nullptr);
  return kSuccess;
}

int get_two(void *pointer, Number first, int *one, Number second, int *two) {
  const Handle *handle = cast(pointer, kCusolverRf);
  if (handle == nullptr) return kNotInitialized;
  if (one != nullptr) *one = static_cast<int>(handle->number[first]);
  if (two != nullptr) *two = static_cast<int>(handle->number[second]);
  return kSuccess;
}
int set_two(void *pointer, Number first, int one, Number second, int two) {
  Handle *handle = cast(pointer, kCusolverRf);
  if (handle == nullptr) return kNotInitialized;
  handle->number[first] = static_cast<uint64_t>(one);
  handle->number[second] = static_cast<uint64_t>(two);
  return kSuccess;
}

// --- Mg ---

// Elements of each device's work area.
int mg_size(void *pointer, int64_t n, int64_t *lwork) {
  if (cast(pointer, kCusolverMg) == nullptr) return kNotInitialized;
  if (lwork == nullptr || n < 0) return kInvalidValue;
  guessed();
  *lwork = n * kPanel;
  return kSuccess;
}
int mg_work(void *pointer, int *info) {
  if (cast(pointer, kCusolverMg) == nullptr) return kNotInitialized;
  count_launch(nullptr);
  if (info != nullptr) *info = 0;  // on the host
  return kSuccess;
}

}  // namespace

GPUMEM_EXPORT int cusolverSpCreate(void **out) { return create_handle(kSpHandles, out); }
GPUMEM_EXPORT int cusolverSpDestroy(void *handle) { return destroy_handle(kSpHandles, handle); }
GPUMEM_EXPORT int cusolverSpSetStream(void *handle, Stream stream) { return set_stream(kSpHandles, handle, stream); }
GPUMEM_EXPORT int cusolverSpGetStream(void *handle, Stream *stream) { return get_stream(kSpHandles, handle, stream); }

// The tolerance is of the matrix's real type, by value.
#define SP_SOLVE(letter, real, bytes, which)                                                                                              \
  GPUMEM_EXPORT int cusolverSp##letter##csrlsv##which(void *handle, int, int elements, const void *, const void *, const int *, const int *, \
                                                      const void *, real, int, void *, int *singularity) {                              \
    return solve_sparse(handle, elements, bytes, singularity);                                                                            \
  }
#define SP_TYPE(letter, real, bytes)                                                                                                      \
  SP_SOLVE(letter, real, bytes, qr)                                                                                                       \
  SP_SOLVE(letter, real, bytes, chol)                                                                                                     \
  GPUMEM_EXPORT int cusolverSp##letter##csrqrBufferInfoBatched(void *handle, int rows, int, int elements, const void *, const void *,     \
                                                               const int *, const int *, int batch, void *info, size_t *internal,         \
                                                               size_t *workspace) {                                                       \
    if (cast(handle, kCusolverSp) == nullptr || cast(info, kCusolverSpInfo) == nullptr) return kNotInitialized;                           \
    if (internal == nullptr || workspace == nullptr || elements < 0 || batch < 1) return kInvalidValue;                                   \
    guessed();                                                                                                                            \
    *internal = static_cast<size_t>(elements) * kFillIn * sizeof(int);                                                                    \
    *workspace = (static_cast<size_t>(elements) * kFillIn + static_cast<size_t>(rows)) * static_cast<size_t>(batch) * bytes;              \
    return kSuccess;                                                                                                                      \
  }                                                                                                                                       \
  GPUMEM_EXPORT int cusolverSp##letter##csrqrsvBatched(void *handle, int, int, int, const void *, const void *, const int *, const int *, \
                                                       const void *, void *, int, void *, void *) {                                       \
    const Handle *found = cast(handle, kCusolverSp);                                                                                      \
    if (found == nullptr) return kNotInitialized;                                                                                         \
    count_launch(found->stream);                                                                                                          \
    return kSuccess;                                                                                                                      \
  }
SP_TYPE(S, float, 4)
SP_TYPE(D, double, 8)
SP_TYPE(C, float, 8)
SP_TYPE(Z, double, 16)
GPUMEM_EXPORT int cusolverSpCreateCsrqrInfo(void **out) { return create_handle(kSpInfos, out); }
GPUMEM_EXPORT int cusolverSpDestroyCsrqrInfo(void *info) { return destroy_handle(kSpInfos, info); }
GPUMEM_EXPORT int cusolverSpXcsrqrAnalysisBatched(void *handle, int, int, int, const void *, const int *, const int *, void *info) {
  return cast(handle, kCusolverSp) != nullptr && cast(info, kCusolverSpInfo) != nullptr ? kSuccess : kNotInitialized;
}

GPUMEM_EXPORT int cusolverRfCreate(void **out) { return create_handle(kRfHandles, out); }
GPUMEM_EXPORT int cusolverRfDestroy(void *handle) { return destroy(kRfHandles, handle); }
GPUMEM_EXPORT int cusolverRfSetMatrixFormat(void *handle, int format, int diagonal) { return set_two(handle, kFormat, format, kDiagonal, diagonal); }
GPUMEM_EXPORT int cusolverRfGetMatrixFormat(void *handle, int *format, int *diagonal) { return get_two(handle, kFormat, format, kDiagonal, diagonal); }
GPUMEM_EXPORT int cusolverRfSetAlgs(void *handle, int factorization, int solve) { return set_two(handle, kFactorization, factorization, kSolve, solve); }
GPUMEM_EXPORT int cusolverRfGetAlgs(void *handle, int *factorization, int *solve) { return get_two(handle, kFactorization, factorization, kSolve, solve); }
GPUMEM_EXPORT int cusolverRfSetResetValuesFastMode(void *handle, int fast) { return set_two(handle, kFastReset, fast, kUnits, 0); }
GPUMEM_EXPORT int cusolverRfGetResetValuesFastMode(void *handle, int *fast) { return get_two(handle, kFastReset, fast, kUnits, nullptr); }
GPUMEM_EXPORT int cusolverRfSetNumericProperties(void *handle, double, double) { return cast(handle, kCusolverRf) != nullptr ? kSuccess : kNotInitialized; }
GPUMEM_EXPORT int cusolverRfGetNumericProperties(void *handle, double *zero, double *boost) {
  if (cast(handle, kCusolverRf) == nullptr) return kNotInitialized;
  if (zero != nullptr) *zero = 0;  // the documented defaults: no boosting
  if (boost != nullptr) *boost = 0;
  return kSuccess;
}
GPUMEM_EXPORT int cusolverRfGetNumericBoostReport(void *handle, int *report) {
  if (cast(handle, kCusolverRf) == nullptr) return kNotInitialized;
  if (report != nullptr) *report = 0;  // CUSOLVERRF_NUMERIC_BOOST_NOT_USED
  return kSuccess;
}
#define RF_SET_UP(name, lower, upper)                                                                                                       \
  GPUMEM_EXPORT int cusolverRf##name(int n, int, int *, int *, double *, int lower, int *, int *, double *, int upper, int *, int *, double *, \
                                     int *, int *, void *handle) {                                                                          \
    if (n < 1 || lower < 0 || upper < 0) return kInvalidValue;                                                                              \
    return set_up(handle, static_cast<uint64_t>(n), static_cast<uint64_t>(lower) + static_cast<uint64_t>(upper), 1);                        \
  }
RF_SET_UP(SetupHost, l, u)
RF_SET_UP(SetupDevice, l, u)
GPUMEM_EXPORT int cusolverRfBatchSetupHost(int batch, int n, int, int *, int *, double **, int l, int *, int *, double *, int u, int *, int *,
                                           double *, int *, int *, void *handle) {
  if (batch < 1 || n < 1 || l < 0 || u < 0) return kInvalidValue;
  return set_up(handle, static_cast<uint64_t>(n), static_cast<uint64_t>(l) + static_cast<uint64_t>(u), static_cast<uint64_t>(batch));
}
GPUMEM_EXPORT int cusolverRfResetValues(int, int, int *, int *, double *, int *, int *, void *handle) { return work(handle); }
GPUMEM_EXPORT int cusolverRfBatchResetValues(int, int, int, int *, int *, double **, int *, int *, void *handle) { return work(handle); }
GPUMEM_EXPORT int cusolverRfAnalyze(void *handle) { return work(handle); }
GPUMEM_EXPORT int cusolverRfRefactor(void *handle) { return work(handle); }
GPUMEM_EXPORT int cusolverRfSolve(void *handle, int *, int *, int, double *, int, double *, int) { return work(handle); }
GPUMEM_EXPORT int cusolverRfBatchAnalyze(void *handle) { return work(handle); }
GPUMEM_EXPORT int cusolverRfBatchRefactor(void *handle) { return work(handle); }
GPUMEM_EXPORT int cusolverRfBatchSolve(void *handle, int *, int *, int, double *, int, double **, int) { return work(handle); }
GPUMEM_EXPORT int cusolverRfBatchZeroPivot(void *handle, int *) { return work(handle); }  // success: no pivot was zero

GPUMEM_EXPORT int cusolverMgCreate(void **out) { return create_handle(kMgHandles, out); }
GPUMEM_EXPORT int cusolverMgDestroy(void *handle) { return destroy_handle(kMgHandles, handle); }
GPUMEM_EXPORT int cusolverMgDeviceSelect(void *handle, int count, int *devices) {
  if (cast(handle, kCusolverMg) == nullptr) return kNotInitialized;
  if (count < 1 || devices == nullptr) return kInvalidValue;
  for (int i = 0; i < count; i++) {
    if (device_description(devices[i]) == nullptr) return kInvalidValue;
    if (!use_device(devices[i])) return kAllocFailed;
  }
  return kSuccess;
}
GPUMEM_EXPORT int cusolverMgCreateDeviceGrid(void **grid, int32_t rows, int32_t columns, const int32_t *devices, int) {
  return rows == 1 && columns > 0 && devices != nullptr ? create_object(kMgObjects, grid) : static_cast<int>(kInvalidValue);
}
GPUMEM_EXPORT int cusolverMgDestroyGrid(void *grid) { return destroy_handle(kMgObjects, grid); }
GPUMEM_EXPORT int cusolverMgCreateMatrixDesc(void **matrix, int64_t rows, int64_t columns, int64_t, int64_t, int, const void *grid) {
  return rows > 0 && columns > 0 && cast(grid, kCusolverMgObject) != nullptr ? create_object(kMgObjects, matrix) : static_cast<int>(kInvalidValue);
}
GPUMEM_EXPORT int cusolverMgDestroyMatrixDesc(void *matrix) { return destroy_handle(kMgObjects, matrix); }
GPUMEM_EXPORT int cusolverMgSyevd_bufferSize(void *handle, int, int, int n, void **, int, int, void *, void *, int, int, int64_t *lwork) {
  return mg_size(handle, n, lwork);
}
GPUMEM_EXPORT int cusolverMgSyevd(void *handle, int, int, int, void **, int, int, void *, void *, int, int, void **, int64_t, int *info) {
  return mg_work(handle, info);
}
GPUMEM_EXPORT int cusolverMgGetrf_bufferSize(void *handle, int m, int n, void **, int, int, void *, int **, int, int64_t *lwork) {
  return mg_size(handle, m > n ? m : n, lwork);
}
GPUMEM_EXPORT int cusolverMgGetrf(void *handle, int, int, void **, int, int, void *, int **, int, void **, int64_t, int *info) {
  return mg_work(handle, info);
}
GPUMEM_EXPORT int cusolverMgGetrs_bufferSize(void *handle, int, int n, int, void **, int, int, void *, int **, void **, int, int, void *, int,
                                             int64_t *lwork) {
  return mg_size(handle, n, lwork);
}
GPUMEM_EXPORT int cusolverMgGetrs(void *handle, int, int, int, void **, int, int, void *, int **, void **, int, int, void *, int, void **, int64_t,
                                  int *info) {
  return mg_work(handle, info);
}
GPUMEM_EXPORT int cusolverMgPotrf_bufferSize(void *handle, int, int n, void **, int, int, void *, int, int64_t *lwork) { return mg_size(handle, n, lwork); }
GPUMEM_EXPORT int cusolverMgPotrf(void *handle, int, int, void **, int, int, void *, int, void **, int64_t, int *info) { return mg_work(handle, info); }
GPUMEM_EXPORT int cusolverMgPotri_bufferSize(void *handle, int, int n, void **, int, int, void *, int, int64_t *lwork) { return mg_size(handle, n, lwork); }
GPUMEM_EXPORT int cusolverMgPotri(void *handle, int, int, void **, int, int, void *, int, void **, int64_t, int *info) { return mg_work(handle, info); }
GPUMEM_EXPORT int cusolverMgPotrs_bufferSize(void *handle, int, int n, int, void **, int, int, void *, void **, int, int, void *, int, int64_t *lwork) {
  return mg_size(handle, n, lwork);
}
GPUMEM_EXPORT int cusolverMgPotrs(void *handle, int, int, int, void **, int, int, void *, void **, int, int, void *, int, void **, int64_t, int *info) {
  return mg_work(handle, info);
}
