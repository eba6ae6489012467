// SPDX-License-Identifier: Apache-2.0
// cuFFT: plans with their work areas. Execution is success by names/cufft.def. Runs in the job's processes.
//
// Note [cuFFT work areas]
// cuFFT's documentation bounds them: between one and eight times batch × n complex elements. Rule: lengths whose prime
// factors are all at most 127 (which cuFFT transforms directly) take one buffer of the transform's complex size; a length
// with a larger prime goes through Bluestein's algorithm and takes two buffers of the next power of two of at least
// 2n - 1. Real transforms have n/2 + 1 complex elements along the last dimension. The estimate says that it is a rule.
// PyTorch allocates the area itself from what cufftXtMakePlanMany says; without that the plan takes device memory here.
#include "estimator/virtual_gpu/libraries/handles.h"

using namespace gpumem::virtual_gpu;
using namespace gpumem::virtual_gpu::libraries;

namespace {

enum : int { kSuccess = 0, kInvalidPlan = 1, kAllocFailed = 2, kInvalidType = 3, kInvalidValue = 4, kInvalidSize = 8 };
enum Type : int { kR2C = 0x2a, kC2R = 0x2c, kC2C = 0x29, kD2Z = 0x6a, kZ2D = 0x6c, kZ2Z = 0x69 };  // cufftType

const char *const kSonames[] = {"libcufft.so.12", "libcufft.so.11", "libcufft.so.10", nullptr};

constexpr int kMaxGpus = 16;  // cuFFT's own limit of a plan

struct Plan {
  bool used, automatic, made;
  uint64_t work_bytes;
  void *own_area;  // taken by the plan itself (automatic allocation)
  Stream stream;
  uint64_t data_bytes;  // of the transformed array
  int gpu_count;        // cufftXtSetGPUs; 0: the current device
  int gpus[kMaxGpus];
  void *gpu_areas[kMaxGpus];  // own_area of each
};

// cufftHandle is an int; plans live in blocks that never move.
constexpr int kBlock = 64, kBlocks = 1024;
Lock plans_lock;
Plan *blocks[kBlocks];

Plan *find(int handle) {
  if (handle < 1 || handle > kBlock * kBlocks) return nullptr;
  Plan *block = blocks[(handle - 1) / kBlock];
  Plan *plan = block != nullptr ? &block[(handle - 1) % kBlock] : nullptr;
  return plan != nullptr && plan->used ? plan : nullptr;
}

int create(int *handle) {
  if (handle == nullptr) return kInvalidValue;
  if (!ready() || !use_device(current_device())) return kAllocFailed;
  Locked locked(plans_lock);
  for (int b = 0; b < kBlocks; b++) {
    if (blocks[b] == nullptr) blocks[b] = static_cast<Plan *>(allocate_zeroed(sizeof(Plan) * kBlock));
    if (blocks[b] == nullptr) return kAllocFailed;
    for (int i = 0; i < kBlock; i++) {
      Plan &plan = blocks[b][i];
      if (plan.used) continue;
      plan = Plan{};
      plan.used = plan.automatic = true;
      *handle = b * kBlock + i + 1;
      return kSuccess;
    }
  }
  return kAllocFailed;
}

uint64_t buffer_length(uint64_t n) {
  uint64_t rest = n;
  for (uint64_t prime = 2; prime <= 127; prime++)
    while (rest % prime == 0) rest /= prime;
  if (rest == 1) return n;
  uint64_t power = 1;
  while (power < 2 * n - 1) power *= 2;
  return 2 * power;
}

bool is_double(int type) { return type == kD2Z || type == kZ2D || type == kZ2Z; }

void release_areas(Plan &plan) {
  if (plan.own_area != nullptr) free_device_memory(plan.own_area);
  plan.own_area = nullptr;
  for (void *&area : plan.gpu_areas) {
    if (area != nullptr) free_device_memory(area);
    area = nullptr;
  }
}

int estimate(int rank, const int64_t *n, int type, int64_t batch, size_t *bytes, uint64_t *data_bytes = nullptr) {
  if (rank < 1 || rank > 3 || n == nullptr || batch < 1) return kInvalidSize;
  if (type != kC2C && type != kR2C && type != kC2R && !is_double(type)) return kInvalidType;
  uint64_t elements = static_cast<uint64_t>(batch), data = elements;
  for (int i = 0; i < rank; i++) {
    if (n[i] < 1) return kInvalidSize;
    uint64_t length = buffer_length(static_cast<uint64_t>(n[i]));
    bool halved = i == rank - 1 && type != kC2C && type != kZ2Z;
    elements *= halved ? length / 2 + 1 : length;
    data *= halved ? static_cast<uint64_t>(n[i]) / 2 + 1 : static_cast<uint64_t>(n[i]);
  }
  if (data_bytes != nullptr) *data_bytes = data * (is_double(type) ? 16 : 8);
  note_guess("FFT work areas: one buffer of the transform's size, more for lengths with large prime factors");
  if (bytes != nullptr) *bytes = static_cast<size_t>(elements * (is_double(type) ? 16 : 8));
  return kSuccess;
}

int make(int handle, int rank, const int64_t *n, int type, int64_t batch, size_t *bytes) {
  Plan *plan = find(handle);
  if (plan == nullptr || plan->made) return kInvalidPlan;
  size_t work = 0;
  int status = estimate(rank, n, type, batch, &work, &plan->data_bytes);
  if (status != kSuccess) return status;
  if (plan->gpu_count > 1) {  // each GPU has its share, and the caller's sizes are an array
    work = (work + static_cast<size_t>(plan->gpu_count) - 1) / static_cast<size_t>(plan->gpu_count);
    for (int i = 0; i < plan->gpu_count; i++) {
      if (bytes != nullptr) bytes[i] = work;
      if (!plan->automatic) continue;
      plan->gpu_areas[i] = allocate_device_memory(plan->gpus[i], work);
      if (plan->gpu_areas[i] != nullptr) continue;
      release_areas(*plan);
      return kAllocFailed;
    }
    plan->work_bytes = work;
    plan->made = true;
    return kSuccess;
  }
  plan->work_bytes = work;
  if (plan->automatic && work > 0) {
    plan->own_area = allocate_device_memory(current_device(), work);
    if (plan->own_area == nullptr) return kAllocFailed;
  }
  plan->made = true;
  if (bytes != nullptr) *bytes = work;
  return kSuccess;
}

int plan_and_make(int *handle, int rank, const int64_t *n, int type, int64_t batch) {
  int status = create(handle);
  return status != kSuccess ? status : make(*handle, rank, n, type, batch, nullptr);
}

// cudaDataType of the execution: CUDA_C_64F 5 and CUDA_R_64F 1 are double, all else at most single precision.
int type_of(int input, int output, int execution) {
  bool real_in = input == 0 || input == 1 || input == 2 || input == 14, real_out = output == 0 || output == 1 || output == 2 || output == 14;
  bool wide = execution == 5 || execution == 1;
  if (real_in && !real_out) return wide ? kD2Z : kR2C;
  if (!real_in && real_out) return wide ? kZ2D : kC2R;
  return wide ? kZ2Z : kC2C;
}

template <class Int>
void widen(int rank, const Int *n, int64_t *out) {
  for (int i = 0; i < 3; i++) out[i] = n != nullptr && i < rank ? static_cast<int64_t>(n[i]) : 0;
}

}  // namespace

GPUMEM_EXPORT int cufftCreate(int *handle) { return create(handle); }
GPUMEM_EXPORT int cufftDestroy(int handle) {
  Locked locked(plans_lock);
  Plan *plan = find(handle);
  if (plan == nullptr) return kInvalidPlan;
  release_areas(*plan);
  plan->used = false;
  return kSuccess;
}
GPUMEM_EXPORT int cufftSetStream(int handle, Stream stream) {
  Plan *plan = find(handle);
  if (plan == nullptr) return kInvalidPlan;
  plan->stream = stream;
  return kSuccess;
}
GPUMEM_EXPORT int cufftSetAutoAllocation(int handle, int automatic) {
  Plan *plan = find(handle);
  if (plan == nullptr) return kInvalidPlan;
  plan->automatic = automatic != 0;
  return kSuccess;
}
GPUMEM_EXPORT int cufftSetWorkArea(int handle, void *) {
  Plan *plan = find(handle);
  if (plan == nullptr) return kInvalidPlan;
  release_areas(*plan);  // the program's area takes its place
  return kSuccess;
}
GPUMEM_EXPORT int cufftGetSize(int handle, size_t *bytes) {
  Plan *plan = find(handle);
  if (plan == nullptr || bytes == nullptr) return kInvalidPlan;
  *bytes = static_cast<size_t>(plan->work_bytes);
  return kSuccess;
}
GPUMEM_EXPORT int cufftGetVersion(int *version) {
  using Function = int (*)(int *);
  if (version == nullptr) return kInvalidValue;
  if (auto real = reinterpret_cast<Function>(loaded_function(kSonames, "cufftGetVersion"))) return real(version);
  *version = 11000;
  return kSuccess;
}
GPUMEM_EXPORT int cufftGetProperty(int part, int *value) {
  static constexpr LibraryVersion kVersion = {kSonames, "cufftGetProperty", {11, 0, 0}, kInvalidValue};
  return library_property(kVersion, part, value);
}

#define LENGTHS_1 int nx
#define LENGTHS_2 int nx, int ny
#define LENGTHS_3 int nx, int ny, int nz
#define DIMENSIONS(rank, lengths, batch_parameter, batch, ...)                                                   \
  GPUMEM_EXPORT int cufftPlan##rank##d(int *handle, lengths, int type batch_parameter) {                         \
    int64_t n[] = {__VA_ARGS__};                                                                                 \
    return plan_and_make(handle, rank, n, type, batch);                                                          \
  }                                                                                                              \
  GPUMEM_EXPORT int cufftMakePlan##rank##d(int handle, lengths, int type batch_parameter, size_t *bytes) {       \
    int64_t n[] = {__VA_ARGS__};                                                                                 \
    return make(handle, rank, n, type, batch, bytes);                                                            \
  }                                                                                                              \
  GPUMEM_EXPORT int cufftEstimate##rank##d(lengths, int type batch_parameter, size_t *bytes) {                   \
    int64_t n[] = {__VA_ARGS__};                                                                                 \
    return estimate(rank, n, type, batch, bytes);                                                                \
  }                                                                                                              \
  GPUMEM_EXPORT int cufftGetSize##rank##d(int, lengths, int type batch_parameter, size_t *bytes) {               \
    int64_t n[] = {__VA_ARGS__};                                                                                 \
    return estimate(rank, n, type, batch, bytes);                                                                \
  }
#define COMMA ,
DIMENSIONS(1, LENGTHS_1, COMMA int batch, batch, nx)
DIMENSIONS(2, LENGTHS_2, , 1, nx, ny)
DIMENSIONS(3, LENGTHS_3, , 1, nx, ny, nz)

GPUMEM_EXPORT int cufftPlanMany(int *handle, int rank, int *n, int *, int, int, int *, int, int, int type, int batch) {
  int64_t wide[3];
  widen(rank, n, wide);
  return plan_and_make(handle, rank, wide, type, batch);
}
GPUMEM_EXPORT int cufftEstimateMany(int rank, int *n, int *, int, int, int *, int, int, int type, int batch, size_t *bytes) {
  int64_t wide[3];
  widen(rank, n, wide);
  return estimate(rank, wide, type, batch, bytes);
}
GPUMEM_EXPORT int cufftMakePlanMany(int handle, int rank, int *n, int *, int, int, int *, int, int, int type, int batch, size_t *bytes) {
  int64_t wide[3];
  widen(rank, n, wide);
  return make(handle, rank, wide, type, batch, bytes);
}
GPUMEM_EXPORT int cufftGetSizeMany(int, int rank, int *n, int *, int, int, int *, int, int, int type, int batch, size_t *bytes) {
  int64_t wide[3];
  widen(rank, n, wide);
  return estimate(rank, wide, type, batch, bytes);
}
GPUMEM_EXPORT int cufftMakePlanMany64(int handle, int rank, long long *n, long long *, long long, long long, long long *, long long,
                                      long long, int type, long long batch, size_t *bytes) {
  int64_t wide[3];
  widen(rank, n, wide);
  return make(handle, rank, wide, type, batch, bytes);
}
GPUMEM_EXPORT int cufftGetSizeMany64(int, int rank, long long *n, long long *, long long, long long, long long *, long long, long long,
                                     int type, long long batch, size_t *bytes) {
  int64_t wide[3];
  widen(rank, n, wide);
  return estimate(rank, wide, type, batch, bytes);
}
GPUMEM_EXPORT int cufftXtMakePlanMany(int handle, int rank, long long *n, long long *, long long, long long, int input, long long *,
                                      long long, long long, int output, long long batch, size_t *bytes, int execution) {
  int64_t wide[3];
  widen(rank, n, wide);
  return make(handle, rank, wide, type_of(input, output, execution), batch, bytes);
}
GPUMEM_EXPORT int cufftXtGetSizeMany(int, int rank, long long *n, long long *, long long, long long, int input, long long *, long long,
                                     long long, int output, long long batch, size_t *bytes, int execution) {
  int64_t wide[3];
  widen(rank, n, wide);
  return estimate(rank, wide, type_of(input, output, execution), batch, bytes);
}

// --- Several GPUs, callbacks, properties (cufftXt.h, cudalibxt.h) ---

namespace {

constexpr int kMaxDescriptorGpus = 64;  // MAX_CUDA_DESCRIPTOR_GPUS
struct XtMemory {                       // cudaXtDesc
  int version, gpu_count;
  int gpus[kMaxDescriptorGpus];
  void *data[kMaxDescriptorGpus];
  size_t bytes[kMaxDescriptorGpus];
  void *state;
};
struct XtDescriptor {  // cudaLibXtDesc
  int version;
  XtMemory *memory;
  int library, format;
  void *of_library;
};

void release_descriptor(XtDescriptor *descriptor) {
  for (int i = 0; i < descriptor->memory->gpu_count; i++)
    if (descriptor->memory->data[i] != nullptr) free_device_memory(descriptor->memory->data[i]);
  release_zeroed(descriptor->memory);
  release_zeroed(descriptor);
}

// Callbacks are device code: they change values, which nobody computes, and no size.
int made_plan(int handle) {
  const Plan *plan = find(handle);
  return plan != nullptr && plan->made ? kSuccess : kInvalidPlan;
}

}  // namespace

GPUMEM_EXPORT int cufftXtSetGPUs(int handle, int count, int *gpus) {
  Plan *plan = find(handle);
  if (plan == nullptr || plan->made) return kInvalidPlan;
  if (count < 1 || count > kMaxGpus || gpus == nullptr) return kInvalidValue;
  for (int i = 0; i < count; i++) {
    if (device_description(gpus[i]) == nullptr) return 11;  // CUFFT_INVALID_DEVICE
    if (!use_device(gpus[i])) return kAllocFailed;
    plan->gpus[i] = gpus[i];
  }
  plan->gpu_count = count;
  return kSuccess;
}
GPUMEM_EXPORT int cufftXtMalloc(int handle, XtDescriptor **out, int format) {
  const Plan *plan = find(handle);
  if (plan == nullptr || !plan->made) return kInvalidPlan;
  if (out == nullptr) return kInvalidValue;
  auto *made = static_cast<XtDescriptor *>(allocate_zeroed(sizeof(XtDescriptor)));
  auto *memory = static_cast<XtMemory *>(allocate_zeroed(sizeof(XtMemory)));
  if (made == nullptr || memory == nullptr) {
    release_zeroed(made);
    release_zeroed(memory);
    return kAllocFailed;
  }
  made->version = memory->version = 1;
  made->memory = memory;
  made->library = 0;  // LIB_FORMAT_CUFFT
  made->format = format;
  memory->gpu_count = plan->gpu_count > 0 ? plan->gpu_count : 1;
  const uint64_t share = (plan->data_bytes + static_cast<uint64_t>(memory->gpu_count) - 1) / static_cast<uint64_t>(memory->gpu_count);
  for (int i = 0; i < memory->gpu_count; i++) {
    memory->gpus[i] = plan->gpu_count > 0 ? plan->gpus[i] : current_device();
    memory->bytes[i] = static_cast<size_t>(share);
    memory->data[i] = allocate_device_memory(memory->gpus[i], memory->bytes[i]);
    if (memory->data[i] != nullptr) continue;
    release_descriptor(made);
    return kAllocFailed;
  }
  *out = made;
  return kSuccess;
}
GPUMEM_EXPORT int cufftXtFree(XtDescriptor *descriptor) {
  if (descriptor == nullptr || descriptor->memory == nullptr) return kInvalidValue;
  release_descriptor(descriptor);
  return kSuccess;
}
GPUMEM_EXPORT int cufftXtMemcpy(int handle, void *destination, void *source, int kind) {
  const Plan *plan = find(handle);
  if (plan == nullptr || !plan->made) return kInvalidPlan;
  if (destination == nullptr || source == nullptr || kind < 0 || kind > 2) return kInvalidValue;
  const auto *to = kind != 1 ? static_cast<XtDescriptor *>(destination)->memory : nullptr;  // CUFFT_COPY_DEVICE_TO_HOST
  const auto *from = kind != 0 ? static_cast<XtDescriptor *>(source)->memory : nullptr;     // CUFFT_COPY_HOST_TO_DEVICE
  const XtMemory *parts = to != nullptr ? to : from;
  uint64_t at = 0;
  for (int i = 0; i < parts->gpu_count && at < plan->data_bytes; i++) {
    const uint64_t bytes = parts->bytes[i] < plan->data_bytes - at ? parts->bytes[i] : plan->data_bytes - at;
    copy_contents(to != nullptr ? to->data[i] : static_cast<char *>(destination) + at,
                  from != nullptr ? from->data[i] : static_cast<char *>(source) + at, bytes);
    at += bytes;
  }
  return kSuccess;
}
GPUMEM_EXPORT int cufftXtSetWorkArea(int handle, void **) {
  Plan *plan = find(handle);
  if (plan == nullptr) return kInvalidPlan;
  release_areas(*plan);
  return kSuccess;
}
GPUMEM_EXPORT int cufftXtSetWorkAreaPolicy(int handle, int, size_t *) { return find(handle) != nullptr ? kSuccess : kInvalidPlan; }
GPUMEM_EXPORT int cufftXtSetCallback(int handle, void **, int, void **) { return made_plan(handle); }
GPUMEM_EXPORT int cufftXtSetJITCallback(int handle, const char *, const void *, size_t, int, void **) {
  return find(handle) != nullptr ? kSuccess : kInvalidPlan;  // before the plan is made
}
GPUMEM_EXPORT int cufftXtClearCallback(int handle, int) { return made_plan(handle); }
GPUMEM_EXPORT int cufftXtSetCallbackSharedSize(int handle, int, size_t) { return made_plan(handle); }
GPUMEM_EXPORT int cufftSetPlanPropertyInt64(int handle, int, long long) { return find(handle) != nullptr ? kSuccess : kInvalidPlan; }
GPUMEM_EXPORT int cufftResetPlanProperty(int handle, int) { return find(handle) != nullptr ? kSuccess : kInvalidPlan; }
GPUMEM_EXPORT int cufftGetPlanPropertyInt64(int handle, int property, long long *value) {
  if (find(handle) == nullptr) return kInvalidPlan;
  if (value == nullptr) return kInvalidValue;
  *value = property == 2 ? 1 : 0;  // NVFFT_PLAN_PROPERTY_INT64_MAX_NUM_HOST_THREADS; PATIENT_JIT is off
  return kSuccess;
}
