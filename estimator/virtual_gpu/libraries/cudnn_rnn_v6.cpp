// SPDX-License-Identifier: Apache-2.0
// cuDNN 8's older interface of recurrent networks, which PyTorch used until cuDNN 9 (2.1 to 2.3). In the job's processes.
//
// A descriptor says neither the input's width nor the data type: they come with each call, in the tensor of the first time
// step. Each time step has a tensor of its own (sequences × width × 1), so that sequences may end early.
#include <string.h>

#include "estimator/virtual_gpu/libraries/cudnn_rnn.h"
#include "estimator/virtual_gpu/libraries/library.h"

using namespace gpumem::virtual_gpu;
using namespace gpumem::virtual_gpu::libraries;

namespace {

using Kind = CudnnDescriptorKind;
constexpr int kDoubleBias = 2;  // CUDNN_RNN_DOUBLE_BIAS, what holds until the program says otherwise

// A copy of the descriptor that knows its input; false where one of the two is none.
bool with_input(const void *pointer, const void *x_pointer, CudnnDescriptor *complete) {
  const CudnnDescriptor *rnn = cudnn_descriptor(pointer, Kind::rnn);
  const CudnnDescriptor *x = cudnn_descriptor(x_pointer, Kind::tensor);
  if (rnn == nullptr || x == nullptr || x->dim_count < 2 || rnn->numbers[kHidden] <= 0) return false;
  *complete = *rnn;
  complete->numbers[kInputSize] = x->dims[1];
  complete->numbers[kDataType] = x->data_type;
  return true;
}

int give_part(const CudnnDescriptor &rnn, const RnnPart &part, const void *weights, void *filter_pointer, void **address) {
  CudnnDescriptor *filter = cudnn_descriptor(filter_pointer, Kind::filter);
  if (filter == nullptr || address == nullptr) return kCudnnBadParam;
  int dims[3] = {1, static_cast<int>(part.rows), static_cast<int>(part.columns)};
  cudnn_set_packed(*filter, rnn.numbers[kDataType], 0, 3, dims);
  *address = part.rows != 0 ? const_cast<char *>(static_cast<const char *>(weights)) + part.offset_bytes : nullptr;
  return kCudnnSuccess;
}

int give_size(const void *pointer, int steps, const void *const *x_pointers, size_t *workspace, size_t *reserve) {
  CudnnDescriptor rnn;
  if (steps <= 0 || x_pointers == nullptr || !with_input(pointer, x_pointers[0], &rnn)) return kCudnnBadParam;
  int batch = 0;
  for (int i = 0; i < steps; i++) {
    const CudnnDescriptor *x = cudnn_descriptor(x_pointers[i], Kind::tensor);
    if (x == nullptr || x->dim_count < 1) return kCudnnBadParam;
    batch = x->dims[0] > batch ? x->dims[0] : batch;
  }
  auto *lengths = static_cast<int *>(allocate_zeroed(sizeof(int) * static_cast<size_t>(batch > 0 ? batch : 1)));
  if (lengths == nullptr) return kCudnnAllocFailed;
  for (int i = 0; i < steps; i++)
    for (int sequence = 0; sequence < cudnn_descriptor(x_pointers[i], Kind::tensor)->dims[0]; sequence++) lengths[sequence]++;
  rnn_sizes(rnn, true, {rnn.numbers[kDataType], kPackedLayout, steps, batch, rnn.numbers[kInputSize], lengths}, workspace, reserve);
  release_zeroed(lengths);
  return kCudnnSuccess;
}

}  // namespace

GPUMEM_EXPORT int cudnnSetRNNDescriptor_v6(void *, void *pointer, int hidden, int layers, void *dropout, int input_mode, int direction,
                                           int cell, int algorithm, int math_precision) {
  CudnnDescriptor *rnn = cudnn_descriptor(pointer, Kind::rnn);
  if (rnn == nullptr || hidden <= 0 || layers <= 0) return kCudnnBadParam;
  memset(rnn->numbers, 0, sizeof rnn->numbers);
  rnn->numbers[kAlgorithm] = algorithm;
  rnn->numbers[kCell] = cell;
  rnn->numbers[kBias] = kDoubleBias;
  rnn->numbers[kDirection] = direction;
  rnn->numbers[kInputMode] = input_mode;
  rnn->numbers[kMathPrecision] = math_precision;
  rnn->numbers[kHidden] = hidden;
  rnn->numbers[kLayers] = layers;
  rnn->pointers[0] = dropout;
  return kCudnnSuccess;
}

GPUMEM_EXPORT int cudnnSetRNNMatrixMathType(void *pointer, int math_type) {
  CudnnDescriptor *rnn = cudnn_descriptor(pointer, Kind::rnn);
  if (rnn == nullptr) return kCudnnBadParam;
  rnn->numbers[kMathType] = math_type;
  return kCudnnSuccess;
}

GPUMEM_EXPORT int cudnnSetRNNBiasMode(void *pointer, int bias) {
  CudnnDescriptor *rnn = cudnn_descriptor(pointer, Kind::rnn);
  if (rnn == nullptr || bias < 0 || bias > 3) return kCudnnBadParam;
  rnn->numbers[kBias] = bias;
  return kCudnnSuccess;
}

// The second projection (of outputs) was never used by cuDNN: it must be 0.
GPUMEM_EXPORT int cudnnSetRNNProjectionLayers(void *, void *pointer, int recurrent, int output) {
  CudnnDescriptor *rnn = cudnn_descriptor(pointer, Kind::rnn);
  if (rnn == nullptr || recurrent < 0 || output != 0) return kCudnnBadParam;
  rnn->numbers[kProjection] = recurrent;
  return kCudnnSuccess;
}

GPUMEM_EXPORT int cudnnGetRNNParamsSize(void *, const void *pointer, const void *x, size_t *bytes, int data_type) {
  CudnnDescriptor rnn;
  if (bytes == nullptr || !with_input(pointer, x, &rnn)) return kCudnnBadParam;
  rnn.numbers[kDataType] = data_type;
  *bytes = rnn_weight_bytes(rnn);
  return kCudnnSuccess;
}

GPUMEM_EXPORT int cudnnGetRNNLinLayerMatrixParams(void *, const void *pointer, int pseudo_layer, const void *x, const void *,
                                                  const void *weights, int id, void *filter, void **address) {
  CudnnDescriptor rnn;
  if (!with_input(pointer, x, &rnn) || !has_rnn_part(rnn, pseudo_layer, id)) return kCudnnBadParam;
  return give_part(rnn, rnn_matrix(rnn, pseudo_layer, id), weights, filter, address);
}

GPUMEM_EXPORT int cudnnGetRNNLinLayerBiasParams(void *, const void *pointer, int pseudo_layer, const void *x, const void *,
                                                const void *weights, int id, void *filter, void **address) {
  CudnnDescriptor rnn;
  if (!with_input(pointer, x, &rnn) || !has_rnn_part(rnn, pseudo_layer, id)) return kCudnnBadParam;
  return give_part(rnn, rnn_bias(rnn, pseudo_layer, id), weights, filter, address);
}

// One size for training and inference: the caller does not say which. The published figures are this function's.
GPUMEM_EXPORT int cudnnGetRNNWorkspaceSize(void *, const void *pointer, int steps, const void *const *x, size_t *bytes) {
  return bytes == nullptr ? static_cast<int>(kCudnnBadParam) : give_size(pointer, steps, x, bytes, nullptr);
}

GPUMEM_EXPORT int cudnnGetRNNTrainingReserveSize(void *, const void *pointer, int steps, const void *const *x, size_t *bytes) {
  return bytes == nullptr ? static_cast<int>(kCudnnBadParam) : give_size(pointer, steps, x, nullptr, bytes);
}
