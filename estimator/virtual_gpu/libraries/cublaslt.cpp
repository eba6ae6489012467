// SPDX-License-Identifier: Apache-2.0
// cuBLASLt: descriptors that remember their attributes, and one algorithm for every product. Runs in the job's processes.
//
// Note [cuBLASLt workspaces]
// The heuristic answers one algorithm that needs no workspace. That loses nothing: PyTorch decides the workspace's size
// before it asks (CUBLASLT_WORKSPACE_SIZE or the cuBLAS workspace, by version and compute capability), allocates all of
// it from its caching allocator and only then passes it to cublasLtMatmul, however little of it the algorithm uses.
#include "estimator/virtual_gpu/libraries/handles.h"

#include <string.h>

using namespace gpumem::virtual_gpu;
using namespace gpumem::virtual_gpu::libraries;

namespace {

enum : int { kSuccess = 0, kNotInitialized = 1, kAllocFailed = 3, kInvalidValue = 7, kNotSupported = 15 };

const char *const kSonames[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11", nullptr};

// A descriptor: matrix layout, matmul, transform, preference or emulation. The largest attribute is a 64-byte algorithm.
constexpr int kMaxAttributes = 40;
constexpr size_t kAttributeBytes = 64;
constexpr uint32_t kLiving = 0x4c744f62;

struct Object {
  uint32_t magic;
  int count;
  Object *next_free;
  struct Attribute {
    int32_t id;
    uint32_t bytes;
    unsigned char value[kAttributeBytes];
  } attributes[kMaxAttributes];
};

// Descriptors come and go with every product, so they are kept for reuse.
Lock pool_lock;
Object *pool;

Object *new_object() {
  pool_lock.lock();
  Object *object = pool;
  if (object != nullptr) pool = object->next_free;
  pool_lock.unlock();
  if (object == nullptr) object = static_cast<Object *>(allocate_zeroed(sizeof(Object)));
  if (object == nullptr) return nullptr;
  object->magic = kLiving;
  object->count = 0;
  return object;
}

Object *living(const void *pointer) {
  auto *object = static_cast<Object *>(const_cast<void *>(pointer));
  return object != nullptr && object->magic == kLiving ? object : nullptr;
}

int set_attribute(const void *pointer, int id, const void *value, size_t bytes) {
  Object *object = living(pointer);
  if (object == nullptr || value == nullptr || bytes == 0 || bytes > kAttributeBytes) return kInvalidValue;
  int i = 0;
  while (i < object->count && object->attributes[i].id != id) i++;
  if (i == kMaxAttributes) return kInvalidValue;
  if (i == object->count) object->count++;
  object->attributes[i].id = id;
  object->attributes[i].bytes = static_cast<uint32_t>(bytes);
  memcpy(object->attributes[i].value, value, bytes);
  return kSuccess;
}

// An attribute that was never set reads as zero, which is the default of nearly all of them.
int get_attribute(const void *pointer, int id, void *value, size_t bytes, size_t *written) {
  Object *object = living(pointer);
  if (object == nullptr) return kInvalidValue;
  for (int i = 0; i < object->count; i++) {
    const Object::Attribute &attribute = object->attributes[i];
    if (attribute.id != id) continue;
    if (written != nullptr) *written = attribute.bytes;
    if (bytes == 0 && written != nullptr) return kSuccess;  // asks for the size only
    if (value == nullptr || bytes != attribute.bytes) return kInvalidValue;
    memcpy(value, attribute.value, bytes);
    return kSuccess;
  }
  if (value == nullptr && written == nullptr) return kInvalidValue;
  if (value != nullptr) memset(value, 0, bytes);
  if (written != nullptr) *written = bytes;
  return kSuccess;
}

int create(void **out) {
  if (out == nullptr) return kInvalidValue;
  *out = new_object();
  return *out != nullptr ? kSuccess : kAllocFailed;
}

int destroy(void *pointer) {
  Object *object = living(pointer);
  if (object == nullptr) return pointer == nullptr ? kSuccess : kInvalidValue;
  object->magic = 0;
  Locked locked(pool_lock);
  object->next_free = pool;
  pool = object;
  return kSuccess;
}

enum LayoutAttribute { kType = 0, kOrder = 1, kRows = 2, kColumns = 3, kLd = 4 };  // CUBLASLT_MATRIX_LAYOUT_*
enum DescAttribute { kComputeType = 0, kScaleType = 1 };                           // CUBLASLT_MATMUL_DESC_*

bool is_fp8(const void *layout) {
  int type = -1;
  return layout != nullptr && get_attribute(layout, kType, &type, sizeof type, nullptr) == kSuccess &&
         (type == 28 || type == 29);  // CUDA_R_8F_E4M3, CUDA_R_8F_E5M2
}

// cublasLtMatmulHeuristicResult_t and cublasLtMatmulAlgo_t, cublasLt.h.
struct Algorithm {
  uint64_t data[8];
};
struct HeuristicResult {
  Algorithm algorithm;
  size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};
static_assert(sizeof(HeuristicResult) == 96, "layout of cublasLt.h");

constexpr LibraryVersion kVersion = {kSonames, "cublasLtGetProperty", {12, 0, 0}, kInvalidValue};
constexpr HandleRules kHandles = {kCublasLt, kNotInitialized, kInvalidValue, kNotInitialized, kAllocFailed};

}  // namespace

GPUMEM_EXPORT const char *cublasGetStatusName(int status);
GPUMEM_EXPORT const char *cublasGetStatusString(int status);
GPUMEM_EXPORT const char *cublasLtGetStatusName(int status) { return cublasGetStatusName(status); }
GPUMEM_EXPORT const char *cublasLtGetStatusString(int status) { return cublasGetStatusString(status); }

GPUMEM_EXPORT int cublasLtCreate(void **handle) { return create_handle(kHandles, handle); }
GPUMEM_EXPORT int cublasLtDestroy(void *handle) { return destroy_handle(kHandles, handle); }

GPUMEM_EXPORT int cublasLtGetProperty(int part, int *value) { return library_property(kVersion, part, value); }
GPUMEM_EXPORT size_t cublasLtGetVersion() { return static_cast<size_t>(library_version(kVersion, 10000)); }
GPUMEM_EXPORT size_t cublasLtGetCudartVersion() {
  using Function = size_t (*)();
  if (auto real = reinterpret_cast<Function>(loaded_function(kSonames, "cublasLtGetCudartVersion"))) return real();
  return 12000;
}
GPUMEM_EXPORT int cublasLtHeuristicsCacheGetCapacity(size_t *capacity) {
  if (capacity == nullptr) return kInvalidValue;
  *capacity = 8192;  // the real one's default
  return kSuccess;
}
GPUMEM_EXPORT int cublasLtHeuristicsCacheSetCapacity(size_t) { return kSuccess; }
GPUMEM_EXPORT int cublasLtLoggerSetLevel(int) { return kSuccess; }
GPUMEM_EXPORT int cublasLtLoggerSetMask(int) { return kSuccess; }
GPUMEM_EXPORT int cublasLtLoggerSetCallback(void *) { return kSuccess; }
GPUMEM_EXPORT int cublasLtLoggerSetFile(void *) { return kSuccess; }
GPUMEM_EXPORT int cublasLtLoggerOpenFile(const char *) { return kSuccess; }
GPUMEM_EXPORT int cublasLtLoggerForceDisable() { return kSuccess; }

GPUMEM_EXPORT int cublasLtMatrixLayoutCreate(void **layout, int type, uint64_t rows, uint64_t columns, int64_t ld) {
  int status = create(layout);
  if (status != kSuccess) return status;
  set_attribute(*layout, kType, &type, sizeof type);
  set_attribute(*layout, kRows, &rows, sizeof rows);
  set_attribute(*layout, kColumns, &columns, sizeof columns);
  set_attribute(*layout, kLd, &ld, sizeof ld);
  int batches = 1;
  set_attribute(*layout, 5, &batches, sizeof batches);  // CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT
  return kSuccess;
}
GPUMEM_EXPORT int cublasLtMatmulDescCreate(void **desc, int compute_type, int scale_type) {
  int status = create(desc);
  if (status != kSuccess) return status;
  set_attribute(*desc, kComputeType, &compute_type, sizeof compute_type);
  set_attribute(*desc, kScaleType, &scale_type, sizeof scale_type);
  int epilogue = 1;
  return set_attribute(*desc, 7, &epilogue, sizeof epilogue);  // CUBLASLT_MATMUL_DESC_EPILOGUE: default
}
GPUMEM_EXPORT int cublasLtMatrixTransformDescCreate(void **desc, int scale_type) {
  int status = create(desc);
  return status != kSuccess ? status : set_attribute(*desc, 0, &scale_type, sizeof scale_type);
}
GPUMEM_EXPORT int cublasLtMatmulPreferenceCreate(void **preference) { return create(preference); }
GPUMEM_EXPORT int cublasLtEmulationDescCreate(void **desc) { return create(desc); }

#define DESCRIPTOR(name)                                                                                              \
  GPUMEM_EXPORT int name##Destroy(void *pointer) { return destroy(pointer); }                                         \
  GPUMEM_EXPORT int name##SetAttribute(void *pointer, int id, const void *value, size_t bytes) {                      \
    return set_attribute(pointer, id, value, bytes);                                                                  \
  }                                                                                                                   \
  GPUMEM_EXPORT int name##GetAttribute(const void *pointer, int id, void *value, size_t bytes, size_t *written) {     \
    return get_attribute(pointer, id, value, bytes, written);                                                         \
  }
DESCRIPTOR(cublasLtMatrixLayout)
DESCRIPTOR(cublasLtMatmulDesc)
DESCRIPTOR(cublasLtMatrixTransformDesc)
DESCRIPTOR(cublasLtMatmulPreference)
DESCRIPTOR(cublasLtEmulationDesc)

GPUMEM_EXPORT int cublasLtMatmulAlgoGetHeuristic(void *, const void *desc, const void *a, const void *b, const void *c,
                                                 const void *d, const void *, int requested, HeuristicResult *results,
                                                 int *returned) {
  if (living(desc) == nullptr || living(a) == nullptr || living(b) == nullptr || living(c) == nullptr ||
      living(d) == nullptr || results == nullptr || returned == nullptr || requested < 1)
    return kInvalidValue;
  *returned = 0;
  const book::DeviceDescription *device = current_device_description();
  if (device == nullptr) return kNotInitialized;
  // FP8 products exist from compute capability 8.9 on.
  if ((is_fp8(a) || is_fp8(b)) && device->compute_major * 10 + device->compute_minor < 89) return kNotSupported;
  memset(results, 0, sizeof *results);
  results->waves = 1.0f;
  *returned = 1;
  return kSuccess;
}

GPUMEM_EXPORT int cublasLtMatmulAlgoCheck(void *, const void *, const void *, const void *, const void *, const void *,
                                          const Algorithm *algorithm, HeuristicResult *result) {
  if (algorithm == nullptr || result == nullptr) return kInvalidValue;
  memset(result, 0, sizeof *result);
  result->algorithm = *algorithm;
  result->waves = 1.0f;
  return kSuccess;
}

GPUMEM_EXPORT int cublasLtMatmul(void *, const void *desc, const void *, const void *, const void *, const void *, const void *,
                                 const void *, const void *, const void *, void *, const void *, const void *, void *, size_t,
                                 Stream stream) {
  if (living(desc) == nullptr) return kInvalidValue;
  count_launch(stream);
  return kSuccess;
}
