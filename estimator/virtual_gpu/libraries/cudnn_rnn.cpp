// SPDX-License-Identifier: Apache-2.0
// cuDNN's recurrent networks (v8 interface): the layout of the weights, and sizes of workspace and reserve. In the job's processes.
//
// Note [RNN weights]
// One buffer: first all matrices, then all biases. For each pseudo-layer (layer × directions + direction) the input
// matrices of all gates, then the recurrent matrices of all gates, then, with a projection, the projection's matrix.
// A pseudo-layer of the first layer reads the input, one of a later layer the outputs of all directions below. PyTorch
// checks this order when it slices the buffer. Gates: LSTM 4, GRU 3, plain 1; matrix IDs 0 … gates-1 read the input,
// gates … 2*gates-1 the previous output, 2*gates is the projection.
//
// Note [RNN sizes]
// Asked of cuDNN itself where it answers (Note [cuDNN's own RNN sizes]). It documents no formula for workspace and reserve; the rule for
// where it cannot be asked is read from figures of cuDNN that NVIDIA's engineer
// published (pytorch/pytorch issue 2895: 4 layers of 320 units on 123 inputs, 100 sequences of 250 steps; LSTM reserve
// 736,000,000 and workspace 17,730,560, GRU 864,000,000 and 13,169,920), which it gives to the byte:
//   reserve (training only): for each time step and sequence, each pseudo-layer keeps 5 (LSTM: gates and cell state),
//   6 (GRU) or 1 (plain) times its units, and every layer but the last its output; with dropout between layers, that output
//   once more and a mask byte. Workspace: a transposed copy of all matrices, and for each pseudo-layer and sequence
//   3 × gates - 1 times its units. Without a reserve (inference) the gates' products of one layer for all steps as well.
// Dropout, plain cells, directions and inference are our extension of it. cuDNN 9 keeps the reserve and takes a larger workspace (the
// same LSTM: 736,000,256 and 176,725,248). The estimate says that it is a rule.
#include <string.h>

#include "estimator/virtual_gpu/libraries/cudnn_rnn.h"
#include "estimator/virtual_gpu/libraries/library.h"

using namespace gpumem::virtual_gpu;
using namespace gpumem::virtual_gpu::libraries;

namespace {

using Kind = CudnnDescriptorKind;

// In an RNN data descriptor's numbers.
enum DataNumber { kLayout, kMaxLength, kBatch, kVector };

struct Shape {
  uint64_t gates, directions, layers, input, hidden, output, biases;
  size_t element;
};

Shape shape_of(const CudnnDescriptor &rnn) {
  auto number = [&](RnnNumber which) { return static_cast<uint64_t>(rnn.numbers[which] > 0 ? rnn.numbers[which] : 0); };
  Shape shape;
  shape.gates = rnn.numbers[kCell] == 2 ? 4 : rnn.numbers[kCell] == 3 ? 3 : 1;  // CUDNN_LSTM, CUDNN_GRU
  shape.directions = rnn.numbers[kDirection] == 1 ? 2 : 1;
  shape.layers = number(kLayers);
  shape.input = number(kInputSize);
  shape.hidden = number(kHidden);
  shape.output = number(kProjection) != 0 ? number(kProjection) : shape.hidden;
  shape.biases = rnn.numbers[kBias] == 0 ? 0 : rnn.numbers[kBias] == 2 ? 2 : 1;  // vectors a gate
  shape.element = cudnn_element_bytes(rnn.numbers[kDataType]);
  return shape;
}

bool has_projection(const Shape &shape) { return shape.output != shape.hidden; }
bool reads_input(const CudnnDescriptor &rnn) { return rnn.numbers[kInputMode] == 0; }  // CUDNN_LINEAR_INPUT

// Width of what the input matrices of a pseudo-layer read; 0 when the first layer has none (CUDNN_SKIP_INPUT).
uint64_t input_width(const CudnnDescriptor &rnn, const Shape &shape, uint64_t pseudo_layer) {
  if (pseudo_layer >= shape.directions) return shape.output * shape.directions;
  return reads_input(rnn) ? shape.input : 0;
}

// Elements of a pseudo-layer's matrices.
uint64_t matrices(const CudnnDescriptor &rnn, const Shape &shape, uint64_t pseudo_layer) {
  uint64_t elements = shape.gates * shape.hidden * (input_width(rnn, shape, pseudo_layer) + shape.output);
  return elements + (has_projection(shape) ? shape.hidden * shape.output : 0);
}

void describe(const void *pointer, int data_type, const RnnPart &part) {
  CudnnDescriptor *tensor = cudnn_descriptor(pointer, Kind::tensor);
  if (tensor == nullptr) return;
  int dims[3] = {1, static_cast<int>(part.rows), static_cast<int>(part.columns)};
  if (part.rows == 0) {
    tensor->dim_count = 0;  // there is no such matrix
    return;
  }
  cudnn_set_packed(*tensor, data_type, 0, 3, dims);
}

void *at(const void *weights, const RnnPart &part) {
  return part.rows != 0 ? const_cast<char *>(static_cast<const char *>(weights)) + part.offset_bytes : nullptr;
}

}  // namespace

namespace gpumem::virtual_gpu::libraries {

size_t rnn_weight_bytes(const CudnnDescriptor &rnn) {
  Shape shape = shape_of(rnn);
  uint64_t elements = 0, pseudo_layers = shape.layers * shape.directions;
  for (uint64_t i = 0; i < pseudo_layers; i++) elements += matrices(rnn, shape, i);
  elements += pseudo_layers * shape.gates * shape.hidden * shape.biases;
  return static_cast<size_t>(elements * shape.element);
}

bool has_rnn_part(const CudnnDescriptor &rnn, int pseudo_layer, int id) {
  Shape shape = shape_of(rnn);
  return pseudo_layer >= 0 && id >= 0 && static_cast<uint64_t>(pseudo_layer) < shape.layers * shape.directions &&
         static_cast<uint64_t>(id) <= 2 * shape.gates;
}

RnnPart rnn_matrix(const CudnnDescriptor &rnn, int pseudo_layer, int id) {
  Shape shape = shape_of(rnn);
  uint64_t layer = static_cast<uint64_t>(pseudo_layer), which = static_cast<uint64_t>(id);
  uint64_t width = input_width(rnn, shape, layer), offset = 0, rows = shape.hidden, columns = 0;
  for (uint64_t i = 0; i < layer; i++) offset += matrices(rnn, shape, i);
  if (which < shape.gates) {
    columns = width;
    offset += which * shape.hidden * width;
  } else if (which < 2 * shape.gates) {
    columns = shape.output;
    offset += shape.gates * shape.hidden * width + (which - shape.gates) * shape.hidden * shape.output;
  } else if (has_projection(shape)) {
    rows = shape.output;
    columns = shape.hidden;
    offset += shape.gates * shape.hidden * (width + shape.output);
  }
  return {offset * shape.element, columns != 0 ? rows : 0, columns};
}

RnnPart rnn_bias(const CudnnDescriptor &rnn, int pseudo_layer, int id) {
  Shape shape = shape_of(rnn);
  uint64_t layer = static_cast<uint64_t>(pseudo_layer), which = static_cast<uint64_t>(id), offset = 0;
  for (uint64_t i = 0; i < shape.layers * shape.directions; i++) offset += matrices(rnn, shape, i);
  uint64_t vectors = shape.gates * shape.biases;  // of one pseudo-layer
  bool exists = which < 2 * shape.gates && (shape.biases == 2 || (shape.biases == 1 && (which < shape.gates) == (rnn.numbers[kBias] == 1)));
  uint64_t index = shape.biases == 1 && which >= shape.gates ? which - shape.gates : which;
  offset += (layer * vectors + index) * shape.hidden;
  return {offset * shape.element, exists ? shape.hidden : 0, 1};
}

void rnn_sizes(const CudnnDescriptor &rnn, bool training, const RnnInput &input, size_t *workspace, size_t *reserve) {
  if (real_rnn_sizes(rnn, training, input, workspace, reserve)) return;
  const uint64_t batch = static_cast<uint64_t>(input.batch);
  uint64_t rows = static_cast<uint64_t>(input.steps) * batch;
  if (input.layout == kPackedLayout && input.lengths != nullptr) {
    rows = 0;
    for (int i = 0; i < input.batch; i++) rows += input.lengths[i] > 0 ? static_cast<uint64_t>(input.lengths[i]) : 0;
  }
  Shape shape = shape_of(rnn);
  uint64_t pseudo_layers = shape.layers * shape.directions;
  uint64_t kept_units = rnn.numbers[kCell] == 2 ? 5 : rnn.numbers[kCell] == 3 ? 6 : 1;
  const CudnnDescriptor *dropout = cudnn_descriptor(rnn.pointers[0], Kind::dropout);
  bool drops = dropout != nullptr && dropout->reals[0] > 0;

  uint64_t between = (shape.layers - 1) * shape.directions * shape.output;  // units of the layers' outputs but the last
  uint64_t kept = (pseudo_layers * kept_units * shape.hidden + between) * shape.element;
  if (drops) kept += between * (shape.element + 1);
  uint64_t transposed = 0;
  for (uint64_t i = 0; i < pseudo_layers; i++) transposed += matrices(rnn, shape, i);
  uint64_t work = (transposed + pseudo_layers * batch * (3 * shape.gates - 1) * shape.hidden) * shape.element;
  if (!training) work += rows * shape.directions * shape.gates * shape.hidden * shape.element;
  note_guess("LSTM, GRU and RNN: workspace and reserve by a rule that fits published figures of cuDNN 7, not from cuDNN");
  if (workspace != nullptr) *workspace = static_cast<size_t>(work);
  if (reserve != nullptr) *reserve = training ? static_cast<size_t>(rows * kept) : 0;
}

}  // namespace gpumem::virtual_gpu::libraries

GPUMEM_EXPORT int cudnnSetRNNDescriptor_v8(void *pointer, int algorithm, int cell, int bias, int direction, int input_mode, int data_type,
                                           int math_precision, int math_type, int32_t input, int32_t hidden, int32_t projection,
                                           int32_t layers, void *dropout, uint32_t flags) {
  CudnnDescriptor *rnn = cudnn_descriptor(pointer, Kind::rnn);
  if (rnn == nullptr || input < 0 || hidden <= 0 || projection < 0 || layers <= 0) return kCudnnBadParam;
  const int values[kRnnNumbers] = {algorithm, cell, bias, direction, input_mode, data_type, math_precision, math_type, input, hidden, projection, layers, static_cast<int>(flags)};
  memcpy(rnn->numbers, values, sizeof values);
  rnn->pointers[0] = dropout;
  return kCudnnSuccess;
}

GPUMEM_EXPORT int cudnnGetRNNDescriptor_v8(void *pointer, int *algorithm, int *cell, int *bias, int *direction, int *input_mode,
                                           int *data_type, int *math_precision, int *math_type, int32_t *input, int32_t *hidden,
                                           int32_t *projection, int32_t *layers, void **dropout, uint32_t *flags) {
  CudnnDescriptor *rnn = cudnn_descriptor(pointer, Kind::rnn);
  if (rnn == nullptr) return kCudnnBadParam;
  int *const out[] = {algorithm, cell, bias, direction, input_mode, data_type, math_precision, math_type, input, hidden, projection, layers};
  for (int i = 0; i < kFlags; i++)
    if (out[i] != nullptr) *out[i] = rnn->numbers[i];
  if (dropout != nullptr) *dropout = rnn->pointers[0];
  if (flags != nullptr) *flags = static_cast<uint32_t>(rnn->numbers[kFlags]);
  return kCudnnSuccess;
}

GPUMEM_EXPORT int cudnnSetRNNDataDescriptor(void *pointer, int data_type, int layout, int max_length, int batch, int vector,
                                            const int *lengths, void *fill) {
  CudnnDescriptor *data = cudnn_descriptor(pointer, Kind::rnn_data);
  if (data == nullptr || max_length <= 0 || batch <= 0 || vector <= 0 || lengths == nullptr) return kCudnnBadParam;
  data->data_type = data_type;
  data->numbers[kLayout] = layout;
  data->numbers[kMaxLength] = max_length;
  data->numbers[kBatch] = batch;
  data->numbers[kVector] = vector;
  data->pointers[0] = fill;
  const size_t bytes = sizeof(int) * static_cast<size_t>(batch);
  void *kept = allocate_zeroed(bytes);
  if (kept == nullptr) return kCudnnAllocFailed;
  memcpy(kept, lengths, bytes);
  release_zeroed(data->owned);
  data->owned = kept;
  return kCudnnSuccess;
}

GPUMEM_EXPORT int cudnnGetRNNWeightSpaceSize(void *, void *pointer, size_t *bytes) {
  const CudnnDescriptor *rnn = cudnn_descriptor(pointer, Kind::rnn);
  if (rnn == nullptr || bytes == nullptr) return kCudnnBadParam;
  *bytes = rnn_weight_bytes(*rnn);
  return kCudnnSuccess;
}

GPUMEM_EXPORT int cudnnGetRNNWeightParams(void *, void *pointer, int32_t pseudo_layer, size_t, const void *weights, int32_t id,
                                          void *matrix_desc, void **matrix, void *bias_desc, void **bias) {
  const CudnnDescriptor *rnn = cudnn_descriptor(pointer, Kind::rnn);
  if (rnn == nullptr || !has_rnn_part(*rnn, pseudo_layer, id)) return kCudnnBadParam;
  RnnPart part = rnn_matrix(*rnn, pseudo_layer, id);
  if (matrix_desc != nullptr) describe(matrix_desc, rnn->numbers[kDataType], part);
  if (matrix != nullptr) *matrix = at(weights, part);
  part = rnn_bias(*rnn, pseudo_layer, id);
  if (bias_desc != nullptr) describe(bias_desc, rnn->numbers[kDataType], part);
  if (bias != nullptr) *bias = at(weights, part);
  return kCudnnSuccess;
}

GPUMEM_EXPORT int cudnnGetRNNTempSpaceSizes(void *, void *pointer, int mode, void *data_pointer, size_t *workspace, size_t *reserve) {
  const CudnnDescriptor *rnn = cudnn_descriptor(pointer, Kind::rnn);
  const CudnnDescriptor *data = cudnn_descriptor(data_pointer, Kind::rnn_data);
  if (rnn == nullptr || data == nullptr) return kCudnnBadParam;
  const RnnInput input{data->data_type,           data->numbers[kLayout], data->numbers[kMaxLength],
                       data->numbers[kBatch],     data->numbers[kVector], static_cast<const int *>(data->owned)};
  rnn_sizes(*rnn, mode == 1, input, workspace, reserve);  // CUDNN_FWD_MODE_TRAINING
  return kCudnnSuccess;
}
