// SPDX-License-Identifier: Apache-2.0
// cuSOLVER's dense interface: handles, buffer sizes, and factorizations that always succeed. In the job's processes.
//
// Note [cuSOLVER buffers]
// cuSOLVER documents no formulae. Rules, in elements of the matrix: blocked factorizations one panel of 64 columns, as
// LAPACK's default block size; divide and conquer and Jacobi eigenvalues LAPACK's 1 + 6n + 2n²; singular values LAPACK's
// 3 min(m,n) + 64 (m+n), Jacobi ones a copy of the matrix and a square more. The estimate says that they are rules.
#include "estimator/virtual_gpu/libraries/handles.h"

using namespace gpumem::virtual_gpu;
using namespace gpumem::virtual_gpu::libraries;

namespace {

enum : int { kSuccess = 0, kNotInitialized = 1, kAllocFailed = 2, kInvalidValue = 3 };
constexpr int64_t kPanel = 64;  // LAPACK's usual block size

const char *const kSonames[] = {"libcusolver.so.12", "libcusolver.so.11", nullptr};
constexpr LibraryVersion kVersion = {kSonames, "cusolverGetProperty", {11, 0, 0}, kInvalidValue};
constexpr HandleRules kHandles = {kCusolver, kNotInitialized, kInvalidValue, kNotInitialized, kAllocFailed};
constexpr HandleRules kObjects = {kCusolverObject, kInvalidValue, kInvalidValue, kNotInitialized, kAllocFailed};

int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t larger(int64_t a, int64_t b) { return a < b ? b : a; }
int64_t panel(int64_t n) { return larger(n, 1) * kPanel; }
int64_t eigen(int64_t n) { return 1 + 6 * n + 2 * n * n; }
int64_t singular(int64_t m, int64_t n) { return 3 * smaller(m, n) + kPanel * (m + n); }
int64_t jacobi_singular(int64_t m, int64_t n) { return m * n + smaller(m, n) * smaller(m, n) + kPanel * (m + n); }

void guessed() { note_guess("buffers of linear algebra (cuSOLVER): by LAPACK's sizes, not from the library"); }

int size(int *lwork, int64_t elements) {
  if (lwork == nullptr) return kInvalidValue;
  guessed();
  *lwork = elements > 0x7fffffff ? 0x7fffffff : static_cast<int>(elements);
  return kSuccess;
}

// Bytes of a cudaDataType: 0 R_32F, 1 R_64F, 4 C_32F, 5 C_64F.
int64_t element_bytes(int type) { return type == 5 ? 16 : type == 1 || type == 4 ? 8 : 4; }

int sizes(size_t *on_device, size_t *on_host, int type, int64_t elements) {
  if (on_device == nullptr || on_host == nullptr) return kInvalidValue;
  guessed();
  *on_device = static_cast<size_t>(elements * element_bytes(type));
  *on_host = 0;
  return kSuccess;
}

// Device work was queued; `info` says of each of `count` matrices that it went well.
int computed(const void *pointer, int *info, int64_t count) {
  Handle *handle = cast(pointer, kCusolver);
  if (handle == nullptr) return kNotInitialized;
  count_launch(handle->stream);
  if (count > 0) zero_result(info, sizeof(int) * static_cast<size_t>(count));
  return kSuccess;
}

int accept(const void *object) { return cast(object, kCusolverObject) != nullptr ? kSuccess : kInvalidValue; }

}  // namespace

GPUMEM_EXPORT int cusolverDnCreate(void **handle) { return create_handle(kHandles, handle); }
GPUMEM_EXPORT int cusolverDnDestroy(void *handle) { return destroy_handle(kHandles, handle); }
GPUMEM_EXPORT int cusolverDnSetStream(void *handle, Stream stream) { return set_stream(kHandles, handle, stream); }
GPUMEM_EXPORT int cusolverDnGetStream(void *handle, Stream *stream) { return get_stream(kHandles, handle, stream); }
#define MODE(name, index)                                                                                            \
  GPUMEM_EXPORT int cusolverDnSet##name(void *handle, int mode) { return set_number(kHandles, handle, index, mode); } \
  GPUMEM_EXPORT int cusolverDnGet##name(const void *handle, int *mode) { return get_number(kHandles, handle, index, mode); }
MODE(DeterministicMode, 0)
MODE(MathMode, 1)
MODE(EmulationStrategy, 2)

GPUMEM_EXPORT int cusolverGetProperty(int part, int *value) { return library_property(kVersion, part, value); }
GPUMEM_EXPORT int cusolverGetVersion(int *version) {
  if (version == nullptr) return kInvalidValue;
  *version = library_version(kVersion, 1000);  // CUSOLVER_VERSION in cusolver_common.h
  return kSuccess;
}

GPUMEM_EXPORT int cusolverDnCreateParams(void **out) { return create_object(kObjects, out); }
GPUMEM_EXPORT int cusolverDnDestroyParams(void *object) { return destroy_handle(kObjects, object); }
GPUMEM_EXPORT int cusolverDnSetAdvOptions(void *object, int, int) { return accept(object); }
GPUMEM_EXPORT int cusolverDnCreateSyevjInfo(void **out) { return create_object(kObjects, out); }
GPUMEM_EXPORT int cusolverDnDestroySyevjInfo(void *object) { return destroy_handle(kObjects, object); }
GPUMEM_EXPORT int cusolverDnXsyevjSetTolerance(void *object, double) { return accept(object); }
GPUMEM_EXPORT int cusolverDnXsyevjSetMaxSweeps(void *object, int) { return accept(object); }
GPUMEM_EXPORT int cusolverDnXsyevjSetSortEig(void *object, int) { return accept(object); }
GPUMEM_EXPORT int cusolverDnCreateGesvdjInfo(void **out) { return create_object(kObjects, out); }
GPUMEM_EXPORT int cusolverDnDestroyGesvdjInfo(void *object) { return destroy_handle(kObjects, object); }
GPUMEM_EXPORT int cusolverDnXgesvdjSetTolerance(void *object, double) { return accept(object); }
GPUMEM_EXPORT int cusolverDnXgesvdjSetMaxSweeps(void *object, int) { return accept(object); }
GPUMEM_EXPORT int cusolverDnXgesvdjSetSortEig(void *object, int) { return accept(object); }

// Arguments that are not looked at keep their C types' register class: pointers and integers.
#define ALL_TYPES(letter, org, orm, eig)                                                                                                  \
  GPUMEM_EXPORT int cusolverDn##letter##potrf_bufferSize(void *, int, int n, void *, int, int *lwork) { return size(lwork, panel(n)); }    \
  GPUMEM_EXPORT int cusolverDn##letter##potrf(void *h, int, int, void *, int, void *, int, int *info) { return computed(h, info, 1); }     \
  GPUMEM_EXPORT int cusolverDn##letter##potrs(void *h, int, int, int, const void *, int, void *, int, int *info) {                         \
    return computed(h, info, 1);                                                                                                           \
  }                                                                                                                                        \
  GPUMEM_EXPORT int cusolverDn##letter##potrfBatched(void *h, int, int, void **, int, int *info, int batch) {                              \
    return computed(h, info, batch);                                                                                                       \
  }                                                                                                                                        \
  GPUMEM_EXPORT int cusolverDn##letter##potrsBatched(void *h, int, int, int, void **, int, void **, int, int *info, int) {                 \
    return computed(h, info, 1);                                                                                                           \
  }                                                                                                                                        \
  GPUMEM_EXPORT int cusolverDn##letter##potri_bufferSize(void *, int, int n, void *, int, int *lwork) { return size(lwork, panel(n)); }    \
  GPUMEM_EXPORT int cusolverDn##letter##potri(void *h, int, int, void *, int, void *, int, int *info) { return computed(h, info, 1); }     \
  GPUMEM_EXPORT int cusolverDn##letter##getrf_bufferSize(void *, int m, int n, void *, int, int *lwork) {                                  \
    return size(lwork, panel(larger(m, n)));                                                                                               \
  }                                                                                                                                        \
  GPUMEM_EXPORT int cusolverDn##letter##getrf(void *h, int, int, void *, int, void *, int *, int *info) { return computed(h, info, 1); }   \
  GPUMEM_EXPORT int cusolverDn##letter##getrs(void *h, int, int, int, const void *, int, const int *, void *, int, int *info) {            \
    return computed(h, info, 1);                                                                                                           \
  }                                                                                                                                        \
  GPUMEM_EXPORT int cusolverDn##letter##geqrf_bufferSize(void *, int, int n, void *, int, int *lwork) { return size(lwork, panel(n)); }    \
  GPUMEM_EXPORT int cusolverDn##letter##geqrf(void *h, int, int, void *, int, void *, void *, int, int *info) {                            \
    return computed(h, info, 1);                                                                                                           \
  }                                                                                                                                        \
  GPUMEM_EXPORT int cusolverDn##letter##org##qr_bufferSize(void *, int, int n, int, const void *, int, const void *, int *lwork) {         \
    return size(lwork, panel(n));                                                                                                          \
  }                                                                                                                                        \
  GPUMEM_EXPORT int cusolverDn##letter##org##qr(void *h, int, int, int, void *, int, const void *, void *, int, int *info) {               \
    return computed(h, info, 1);                                                                                                           \
  }                                                                                                                                        \
  GPUMEM_EXPORT int cusolverDn##letter##orm##qr_bufferSize(void *, int, int, int m, int n, int, const void *, int, const void *,           \
                                                           const void *, int, int *lwork) {                                                \
    return size(lwork, panel(larger(m, n)));                                                                                               \
  }                                                                                                                                        \
  GPUMEM_EXPORT int cusolverDn##letter##orm##qr(void *h, int, int, int, int, int, const void *, int, const void *, void *, int, void *,    \
                                                int, int *info) {                                                                          \
    return computed(h, info, 1);                                                                                                           \
  }                                                                                                                                        \
  GPUMEM_EXPORT int cusolverDn##letter##sytrf_bufferSize(void *, int n, void *, int, int *lwork) { return size(lwork, panel(n)); }         \
  GPUMEM_EXPORT int cusolverDn##letter##sytrf(void *h, int, int, void *, int, int *, void *, int, int *info) {                             \
    return computed(h, info, 1);                                                                                                           \
  }                                                                                                                                        \
  GPUMEM_EXPORT int cusolverDn##letter##gesvd_bufferSize(void *, int m, int n, int *lwork) { return size(lwork, singular(m, n)); }         \
  GPUMEM_EXPORT int cusolverDn##letter##gesvd(void *h, signed char, signed char, int, int, void *, int, void *, void *, int, void *, int,  \
                                              void *, int, void *, int *info) {                                                            \
    return computed(h, info, 1);                                                                                                           \
  }                                                                                                                                        \
  GPUMEM_EXPORT int cusolverDn##letter##gesvdj_bufferSize(void *, int, int, int m, int n, const void *, int, const void *, const void *,   \
                                                          int, const void *, int, int *lwork, void *) {                                    \
    return size(lwork, jacobi_singular(m, n));                                                                                             \
  }                                                                                                                                        \
  GPUMEM_EXPORT int cusolverDn##letter##gesvdj(void *h, int, int, int, int, void *, int, void *, void *, int, void *, int, void *, int,    \
                                               int *info, void *) {                                                                        \
    return computed(h, info, 1);                                                                                                           \
  }                                                                                                                                        \
  GPUMEM_EXPORT int cusolverDn##letter##gesvdjBatched_bufferSize(void *, int, int m, int n, const void *, int, const void *, const void *, \
                                                                 int, const void *, int, int *lwork, void *, int batch) {                  \
    return size(lwork, jacobi_singular(m, n) * batch);                                                                                     \
  }                                                                                                                                        \
  GPUMEM_EXPORT int cusolverDn##letter##gesvdjBatched(void *h, int, int, int, void *, int, void *, void *, int, void *, int, void *, int,  \
                                                      int *info, void *, int batch) {                                                      \
    return computed(h, info, batch);                                                                                                       \
  }                                                                                                                                        \
  GPUMEM_EXPORT int cusolverDn##letter##gesvdaStridedBatched_bufferSize(                                                                   \
      void *, int, int, int m, int n, const void *, int, long long, const void *, long long, const void *, int, long long, const void *,   \
      int, long long, int *lwork, int batch) {                                                                                             \
    return size(lwork, jacobi_singular(m, n) * batch);                                                                                     \
  }                                                                                                                                        \
  GPUMEM_EXPORT int cusolverDn##letter##gesvdaStridedBatched(void *h, int, int, int, int, const void *, int, long long, void *, long long, \
                                                             void *, int, long long, void *, int, long long, void *, int, int *info,       \
                                                             double *residual, int batch) {                                                \
    if (batch > 0) zero_result(residual, sizeof(double) * static_cast<size_t>(batch));                                                     \
    return computed(h, info, batch);                                                                                                       \
  }                                                                                                                                        \
  GPUMEM_EXPORT int cusolverDn##letter##eig##evd_bufferSize(void *, int, int, int n, const void *, int, const void *, int *lwork) {        \
    return size(lwork, eigen(n));                                                                                                          \
  }                                                                                                                                        \
  GPUMEM_EXPORT int cusolverDn##letter##eig##evd(void *h, int, int, int, void *, int, void *, void *, int, int *info) {                    \
    return computed(h, info, 1);                                                                                                           \
  }                                                                                                                                        \
  GPUMEM_EXPORT int cusolverDn##letter##eig##evj_bufferSize(void *, int, int, int n, const void *, int, const void *, int *lwork,          \
                                                            void *) {                                                                      \
    return size(lwork, eigen(n));                                                                                                          \
  }                                                                                                                                        \
  GPUMEM_EXPORT int cusolverDn##letter##eig##evj(void *h, int, int, int, void *, int, void *, void *, int, int *info, void *) {            \
    return computed(h, info, 1);                                                                                                           \
  }                                                                                                                                        \
  GPUMEM_EXPORT int cusolverDn##letter##eig##evjBatched_bufferSize(void *, int, int, int n, const void *, int, const void *, int *lwork,   \
                                                                   void *, int batch) {                                                    \
    return size(lwork, eigen(n) * batch);                                                                                                  \
  }                                                                                                                                        \
  GPUMEM_EXPORT int cusolverDn##letter##eig##evjBatched(void *h, int, int, int, void *, int, void *, void *, int, int *info, void *,       \
                                                        int batch) {                                                                       \
    return computed(h, info, batch);                                                                                                       \
  }
ALL_TYPES(S, org, orm, sy)
ALL_TYPES(D, org, orm, sy)
ALL_TYPES(C, ung, unm, he)
ALL_TYPES(Z, ung, unm, he)

// --- The interface by data type. Sizes in bytes, on the device and on the host. ---

GPUMEM_EXPORT int cusolverDnXpotrf_bufferSize(void *, void *, int, int64_t n, int type, const void *, int64_t, int, size_t *device, size_t *host) {
  return sizes(device, host, type, panel(n));
}
GPUMEM_EXPORT int cusolverDnXpotrf(void *h, void *, int, int64_t, int, void *, int64_t, int, void *, size_t, void *, size_t, int *info) {
  return computed(h, info, 1);
}
GPUMEM_EXPORT int cusolverDnXpotrs(void *h, void *, int, int64_t, int64_t, int, const void *, int64_t, int, void *, int64_t, int *info) {
  return computed(h, info, 1);
}
GPUMEM_EXPORT int cusolverDnXgeqrf_bufferSize(void *, void *, int64_t, int64_t n, int type, const void *, int64_t, int, const void *, int,
                                              size_t *device, size_t *host) {
  return sizes(device, host, type, panel(n));
}
GPUMEM_EXPORT int cusolverDnXgeqrf(void *h, void *, int64_t, int64_t, int, void *, int64_t, int, void *, int, void *, size_t, void *, size_t,
                                   int *info) {
  return computed(h, info, 1);
}
GPUMEM_EXPORT int cusolverDnXgetrf_bufferSize(void *, void *, int64_t m, int64_t n, int type, const void *, int64_t, int, size_t *device,
                                              size_t *host) {
  return sizes(device, host, type, panel(larger(m, n)));
}
GPUMEM_EXPORT int cusolverDnXgetrf(void *h, void *, int64_t, int64_t, int, void *, int64_t, int64_t *, int, void *, size_t, void *, size_t,
                                   int *info) {
  return computed(h, info, 1);
}
GPUMEM_EXPORT int cusolverDnXgetrs(void *h, void *, int, int64_t, int64_t, int, const void *, int64_t, const int64_t *, int, void *, int64_t,
                                   int *info) {
  return computed(h, info, 1);
}
GPUMEM_EXPORT int cusolverDnXsytrs_bufferSize(void *, int, int64_t n, int64_t, int type, const void *, int64_t, const int64_t *, int,
                                              void *, int64_t, size_t *device, size_t *host) {
  return sizes(device, host, type, panel(n));
}
GPUMEM_EXPORT int cusolverDnXsytrs(void *h, int, int64_t, int64_t, int, const void *, int64_t, const int64_t *, int, void *, int64_t, void *,
                                   size_t, void *, size_t, int *info) {
  return computed(h, info, 1);
}
GPUMEM_EXPORT int cusolverDnXsyevd_bufferSize(void *, void *, int, int, int64_t n, int type, const void *, int64_t, int, const void *, int,
                                              size_t *device, size_t *host) {
  return sizes(device, host, type, eigen(n));
}
GPUMEM_EXPORT int cusolverDnXsyevd(void *h, void *, int, int, int64_t, int, void *, int64_t, int, void *, int, void *, size_t, void *, size_t,
                                   int *info) {
  return computed(h, info, 1);
}
GPUMEM_EXPORT int cusolverDnXsyevBatched_bufferSize(void *, void *, int, int, int64_t n, int type, const void *, int64_t, int, const void *,
                                                    int, size_t *device, size_t *host, int64_t batch) {
  return sizes(device, host, type, eigen(n) * batch);
}
GPUMEM_EXPORT int cusolverDnXsyevBatched(void *h, void *, int, int, int64_t, int, void *, int64_t, int, void *, int, void *, size_t, void *,
                                         size_t, int *info, int64_t batch) {
  return computed(h, info, batch);
}
GPUMEM_EXPORT int cusolverDnXgeev_bufferSize(void *, void *, int, int, int64_t n, int type, const void *, int64_t, int, const void *, int,
                                             const void *, int64_t, int, const void *, int64_t, int, size_t *device, size_t *host) {
  return sizes(device, host, type, eigen(n));
}
GPUMEM_EXPORT int cusolverDnXgeev(void *h, void *, int, int, int64_t, int, void *, int64_t, int, void *, int, void *, int64_t, int, void *,
                                  int64_t, int, void *, size_t, void *, size_t, int *info) {
  return computed(h, info, 1);
}
GPUMEM_EXPORT int cusolverDnXgesvd_bufferSize(void *, void *, signed char, signed char, int64_t m, int64_t n, int type, const void *, int64_t,
                                              int, const void *, int, const void *, int64_t, int, const void *, int64_t, int, size_t *device,
                                              size_t *host) {
  return sizes(device, host, type, singular(m, n));
}
GPUMEM_EXPORT int cusolverDnXgesvd(void *h, void *, signed char, signed char, int64_t, int64_t, int, void *, int64_t, int, void *, int, void *,
                                   int64_t, int, void *, int64_t, int, void *, size_t, void *, size_t, int *info) {
  return computed(h, info, 1);
}
