// SPDX-License-Identifier: Apache-2.0
// cuDNN's handle, versions, batch normalization, dropout, CTC loss and older convolution interface. In the job's processes.
// Plans and their workspaces: cudnn_backend.cpp. Recurrent networks: cudnn_rnn.cpp. What computes: names/cudnn.def.
#include <string.h>

#include "estimator/virtual_gpu/libraries/cudnn_descriptor.h"
#include "estimator/virtual_gpu/libraries/cudnn_real.h"
#include "estimator/virtual_gpu/libraries/handles.h"

using namespace gpumem::virtual_gpu;
using namespace gpumem::virtual_gpu::libraries;

namespace {

struct StatusWord {
  int status;
  const char *text;
};
const StatusWord kStatusWords[] = {
    {0, "CUDNN_STATUS_SUCCESS"},           {1001, "CUDNN_STATUS_NOT_INITIALIZED"},
    {1003, "CUDNN_STATUS_ALLOC_FAILED"},   {2000, "CUDNN_STATUS_BAD_PARAM"},
    {3000, "CUDNN_STATUS_NOT_SUPPORTED"},  {4000, "CUDNN_STATUS_INTERNAL_ERROR"},
    {5000, "CUDNN_STATUS_EXECUTION_FAILED"},
    // cuDNN 8's numbers
    {1, "CUDNN_STATUS_NOT_INITIALIZED"},   {2, "CUDNN_STATUS_ALLOC_FAILED"},
    {3, "CUDNN_STATUS_BAD_PARAM"},         {4, "CUDNN_STATUS_INTERNAL_ERROR"},
    {8, "CUDNN_STATUS_EXECUTION_FAILED"},  {9, "CUDNN_STATUS_NOT_SUPPORTED"},
};

constexpr HandleRules kHandles = {kCudnn, kCudnnBadParam, kCudnnBadParam, kCudnnNotInitialized, kCudnnAllocFailed};

int give(size_t *bytes, uint64_t value) {
  if (bytes == nullptr) return kCudnnBadParam;
  *bytes = static_cast<size_t>(value);
  return kCudnnSuccess;
}

// Channels-last (dim 1 varies fastest): only there does cuDNN's persistent batch normalization need memory of its own.
bool channels_last(const CudnnDescriptor &tensor) { return tensor.dim_count > 2 && tensor.dims[1] > 1 && tensor.strides[1] == 1; }

// Rule: the persistent channels-last kernels sum in two levels: per channel two float partial sums for each block along
// the rows, of which a device holds at most one a multiprocessor; otherwise nothing. PyTorch frees it right after the call.
int batch_norm_workspace(int mode, const void *x_pointer, size_t *bytes) {
  const CudnnDescriptor *x = cudnn_descriptor(x_pointer, CudnnDescriptorKind::tensor);
  if (x == nullptr) return kCudnnBadParam;
  if (mode != 2 || !channels_last(*x)) return give(bytes, 0);  // CUDNN_BATCHNORM_SPATIAL_PERSISTENT
  const book::DeviceDescription *device = current_device_description();
  uint64_t blocks = device != nullptr && device->sm_count != 0 ? device->sm_count : 1;
  uint64_t channels = static_cast<uint64_t>(x->dims[1]);
  note_detail("channels-last batch normalization: workspace of two floats per channel and multiprocessor");
  return give(bytes, round_up(channels * blocks * 2 * sizeof(float), 512));
}

// cudnnConvolution{Fwd,BwdData,BwdFilter}AlgoPerf_t, cudnn_cnn.h: the same layout three times.
struct AlgorithmResult {
  int algorithm;
  int status;
  float time_ms;
  size_t memory;
  int determinism;
  int math_type;
  int reserved[3];
};
static_assert(sizeof(AlgorithmResult) == 48, "layout of cudnn_cnn.h");

// The older convolution interface (TORCH_CUDNN_V8_API_DISABLED=1): algorithm 0 in all three directions, which is
// documented to need no workspace. The real choice may be a faster one with a workspace.
int one_algorithm(int requested, int *returned, AlgorithmResult *results) {
  if (requested < 1 || returned == nullptr || results == nullptr) return kCudnnBadParam;
  memset(results, 0, sizeof *results);
  results->time_ms = 0.1f;
  *returned = 1;
  note_guess("convolutions of cuDNN's older interface: taken to use no workspace");
  return kCudnnSuccess;
}

}  // namespace

GPUMEM_EXPORT int cudnnCreate(void **handle) { return create_handle(kHandles, handle); }
GPUMEM_EXPORT int cudnnDestroy(void *handle) { return handle == nullptr ? static_cast<int>(kCudnnSuccess) : destroy_handle(kHandles, handle); }
GPUMEM_EXPORT int cudnnSetStream(void *handle, Stream stream) { return set_stream(kHandles, handle, stream); }
GPUMEM_EXPORT int cudnnGetStream(void *handle, Stream *stream) { return get_stream(kHandles, handle, stream); }

GPUMEM_EXPORT size_t cudnnGetVersion() { return job_cudnn_version(); }
GPUMEM_EXPORT size_t cudnnGetCudartVersion() {
  if (auto real = reinterpret_cast<size_t (*)()>(job_cudnn_function("cudnnGetCudartVersion"))) return real();
  const book::DeviceDescription *device = current_device_description();
  return device != nullptr ? device->cuda_version : 12000;
}
GPUMEM_EXPORT size_t cudnnGetMaxDeviceVersion() {
  const book::DeviceDescription *device = current_device_description();
  return device != nullptr ? device->compute_major * 100 + device->compute_minor * 10 : 0;
}
GPUMEM_EXPORT int cudnnGetProperty(int type, int *value) {
  if (value == nullptr || type < 0 || type > 2) return kCudnnBadParam;
  size_t version = job_cudnn_version();
  size_t major = version >= 10000 ? version / 10000 : version / 1000;
  size_t minor = version >= 10000 ? version / 100 % 100 : version / 100 % 10;
  *value = static_cast<int>(type == 0 ? major : type == 1 ? minor : version % 100);
  return kCudnnSuccess;
}
GPUMEM_EXPORT const char *cudnnGetErrorString(int status) {
  for (const StatusWord &word : kStatusWords)
    if (word.status == status) return word.text;
  return status >= 3000 && status < 4000 ? "CUDNN_STATUS_NOT_SUPPORTED" : "CUDNN_STATUS_UNKNOWN";
}
GPUMEM_EXPORT void cudnnGetLastErrorString(char *message, size_t size) {
  if (message != nullptr && size > 0) message[0] = '\0';
}
GPUMEM_EXPORT int cudnnQueryRuntimeError(void *, int *status, int, void *) {
  if (status == nullptr) return kCudnnBadParam;
  *status = kCudnnSuccess;
  return kCudnnSuccess;
}
GPUMEM_EXPORT int cudnnSetCallback(unsigned, void *, void *) { return kCudnnSuccess; }
GPUMEM_EXPORT int cudnnGetCallback(unsigned *mask, void **data, void **function) {
  if (mask != nullptr) *mask = 0;
  if (data != nullptr) *data = nullptr;
  if (function != nullptr) *function = nullptr;
  return kCudnnSuccess;
}
GPUMEM_EXPORT int cudnnGraphVersionCheck() { return kCudnnSuccess; }
GPUMEM_EXPORT int cudnnOpsVersionCheck() { return kCudnnSuccess; }
GPUMEM_EXPORT int cudnnCnnVersionCheck() { return kCudnnSuccess; }
GPUMEM_EXPORT int cudnnAdvVersionCheck() { return kCudnnSuccess; }

// --- Batch normalization ---

GPUMEM_EXPORT int cudnnDeriveBNTensorDescriptor(void *derived_pointer, const void *x_pointer, int mode) {
  CudnnDescriptor *derived = cudnn_descriptor(derived_pointer, CudnnDescriptorKind::tensor);
  const CudnnDescriptor *x = cudnn_descriptor(x_pointer, CudnnDescriptorKind::tensor);
  if (derived == nullptr || x == nullptr || x->dim_count < 2) return kCudnnBadParam;
  int dims[kCudnnMaxDims];
  for (int i = 0; i < x->dim_count; i++) dims[i] = i == 1 || (mode == 0 && i > 0) ? x->dims[i] : 1;
  int type = x->data_type == 1 ? 1 : 0;  // double stays double, all else is float
  cudnn_set_packed(*derived, type, 0, x->dim_count, dims);
  return kCudnnSuccess;
}
GPUMEM_EXPORT int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(void *, int mode, int, const void *x, const void *, const void *,
                                                                           const void *, const void *, size_t *bytes) {
  return batch_norm_workspace(mode, x, bytes);
}
GPUMEM_EXPORT int cudnnGetBatchNormalizationBackwardExWorkspaceSize(void *, int mode, int, const void *x, const void *, const void *,
                                                                    const void *, const void *, const void *, const void *, size_t *bytes) {
  return batch_norm_workspace(mode, x, bytes);
}
// The reserve keeps the sign of the fused activation, one bit an element; without one there is nothing to keep.
GPUMEM_EXPORT int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(void *, int, int operations, const void *, const void *x_pointer,
                                                                       size_t *bytes) {
  const CudnnDescriptor *x = cudnn_descriptor(x_pointer, CudnnDescriptorKind::tensor);
  if (x == nullptr) return kCudnnBadParam;
  return give(bytes, operations == 0 ? 0 : round_up((cudnn_elements(*x) + 7) / 8, 256));
}

// --- Dropout ---

// Rule: 24 bytes of generator state for each thread that the device can run at once. Not documented, and cuDNN reads it from a handle.
GPUMEM_EXPORT int cudnnDropoutGetStatesSize(void *handle, size_t *bytes) {
  if (cast(handle, kCudnn) == nullptr) return kCudnnBadParam;
  const book::DeviceDescription *device = current_device_description();
  if (device == nullptr) return kCudnnNotInitialized;
  note_guess("the state of cuDNN's dropout generator is sized by a rule (24 bytes a resident thread)");
  return give(bytes, uint64_t{24} * device->sm_count * (device->threads_per_sm != 0 ? device->threads_per_sm : 2048));
}
GPUMEM_EXPORT int cudnnDropoutGetReserveSpaceSize(const void *x_pointer, size_t *bytes) {
  const CudnnDescriptor *x = cudnn_descriptor(x_pointer, CudnnDescriptorKind::tensor);
  if (x == nullptr) return kCudnnBadParam;
  return give(bytes, (cudnn_elements(*x) + 7) / 8);  // the mask, one bit an element: what cuDNN 9.10 and 9.19 answer
}

namespace {
int set_dropout(void *pointer, float rate, void *states, unsigned long long seed) {
  CudnnDescriptor *dropout = cudnn_descriptor(pointer, CudnnDescriptorKind::dropout);
  if (dropout == nullptr || rate < 0 || rate > 1) return kCudnnBadParam;
  dropout->reals[0] = static_cast<double>(rate);
  dropout->pointers[0] = states;
  memcpy(dropout->numbers, &seed, sizeof seed);
  return kCudnnSuccess;
}
}  // namespace

GPUMEM_EXPORT int cudnnSetDropoutDescriptor(void *pointer, void *, float rate, void *states, size_t, unsigned long long seed) {
  return set_dropout(pointer, rate, states, seed);
}
GPUMEM_EXPORT int cudnnRestoreDropoutDescriptor(void *pointer, void *, float rate, void *states, size_t, unsigned long long seed) {
  return set_dropout(pointer, rate, states, seed);
}
GPUMEM_EXPORT int cudnnGetDropoutDescriptor(void *pointer, void *, float *rate, void **states, unsigned long long *seed) {
  CudnnDescriptor *dropout = cudnn_descriptor(pointer, CudnnDescriptorKind::dropout);
  if (dropout == nullptr) return kCudnnBadParam;
  if (rate != nullptr) *rate = static_cast<float>(dropout->reals[0]);
  if (states != nullptr) *states = dropout->pointers[0];
  if (seed != nullptr) memcpy(seed, dropout->numbers, sizeof *seed);
  return kCudnnSuccess;
}

// --- CTC loss. Rule: forward and backward variables of every time step, sequence and extended label, in float. ---

namespace {
int ctc_workspace(const void *probabilities_pointer, int label_length, size_t *bytes) {
  const CudnnDescriptor *probabilities = cudnn_descriptor(probabilities_pointer, CudnnDescriptorKind::tensor);
  if (probabilities == nullptr || probabilities->dim_count < 3) return kCudnnBadParam;
  uint64_t steps = static_cast<uint64_t>(probabilities->dims[0]), batch = static_cast<uint64_t>(probabilities->dims[1]);
  uint64_t extended = 2 * static_cast<uint64_t>(label_length) + 1;
  note_guess("CTC loss: workspace of two floats per time step, sequence and extended label");
  return give(bytes, round_up(2 * sizeof(float) * steps * batch * extended, 512));
}
}  // namespace

GPUMEM_EXPORT int cudnnGetCTCLossWorkspaceSize(void *, const void *probabilities, const void *, const int *, const int *label_lengths,
                                               const int *, int, void *, size_t *bytes) {
  const CudnnDescriptor *tensor = cudnn_descriptor(probabilities, CudnnDescriptorKind::tensor);
  int longest = 0;
  if (tensor != nullptr && tensor->dim_count >= 2 && label_lengths != nullptr)
    for (int i = 0; i < tensor->dims[1]; i++) longest = label_lengths[i] > longest ? label_lengths[i] : longest;
  return ctc_workspace(probabilities, longest, bytes);
}
GPUMEM_EXPORT int cudnnGetCTCLossWorkspaceSize_v8(void *, int, void *loss_pointer, const void *probabilities, const void *, size_t *bytes) {
  const CudnnDescriptor *loss = cudnn_descriptor(loss_pointer, CudnnDescriptorKind::ctc_loss);
  return loss == nullptr ? static_cast<int>(kCudnnBadParam) : ctc_workspace(probabilities, loss->numbers[3], bytes);
}

// --- The older convolution interface ---

#define DIRECTION(name)                                                                                                               \
  GPUMEM_EXPORT int cudnnGetConvolution##name##Algorithm_v7(void *, const void *, const void *, const void *, const void *,           \
                                                            int requested, int *returned, AlgorithmResult *results) {                 \
    return one_algorithm(requested, returned, results);                                                                               \
  }                                                                                                                                   \
  GPUMEM_EXPORT int cudnnFindConvolution##name##Algorithm(void *, const void *, const void *, const void *, const void *,             \
                                                          int requested, int *returned, AlgorithmResult *results) {                   \
    return one_algorithm(requested, returned, results);                                                                               \
  }                                                                                                                                   \
  GPUMEM_EXPORT int cudnnFindConvolution##name##AlgorithmEx(void *, const void *, const void *, const void *, const void *,           \
                                                            const void *, const void *, void *, int requested, int *returned,         \
                                                            AlgorithmResult *results, void *, size_t) {                               \
    return one_algorithm(requested, returned, results);                                                                               \
  }                                                                                                                                   \
  GPUMEM_EXPORT int cudnnGetConvolution##name##WorkspaceSize(void *, const void *, const void *, const void *, const void *, int,     \
                                                             size_t *bytes) {                                                         \
    return give(bytes, 0);                                                                                                            \
  }                                                                                                                                   \
  GPUMEM_EXPORT int cudnnGetConvolution##name##AlgorithmMaxCount(void *, int *count) {                                                \
    if (count == nullptr) return kCudnnBadParam;                                                                                      \
    *count = 1;                                                                                                                       \
    return kCudnnSuccess;                                                                                                             \
  }
DIRECTION(Forward)
DIRECTION(BackwardData)
DIRECTION(BackwardFilter)
