// SPDX-License-Identifier: Apache-2.0
// What cuDNN's two interfaces of recurrent networks share (v8: cudnn_rnn.cpp; the older one, gone in cuDNN 9: cudnn_rnn_v6.cpp).
// Runs in the job's processes. Sizes in bytes unless said otherwise; the layout and the rules are in notes of cudnn_rnn.cpp.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "estimator/virtual_gpu/libraries/cudnn_descriptor.h"

namespace gpumem::virtual_gpu::libraries {

// In an RNN descriptor's numbers, in the order of cudnnSetRNNDescriptor_v8.
enum RnnNumber { kAlgorithm, kCell, kBias, kDirection, kInputMode, kDataType, kMathPrecision, kMathType, kInputSize, kHidden, kProjection, kLayers, kFlags, kRnnNumbers };

// A matrix or bias inside the buffer of weights; no rows: there is none.
struct RnnPart {
  uint64_t offset_bytes, rows, columns;
};

size_t rnn_weight_bytes(const CudnnDescriptor &rnn);
bool has_rnn_part(const CudnnDescriptor &rnn, int pseudo_layer, int id);
RnnPart rnn_matrix(const CudnnDescriptor &rnn, int pseudo_layer, int id);
RnnPart rnn_bias(const CudnnDescriptor &rnn, int pseudo_layer, int id);

constexpr int kPackedLayout = 1;  // CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED
// What a network reads: `batch` sequences of up to `steps` steps. A packed layout has no room for steps that are not there.
struct RnnInput {
  int data_type, layout, steps, batch, width;
  const int *lengths;  // of each sequence
};
// Workspace and, in training, reserve (either may be null): as cuDNN computes them, else by the rule; the estimate says which.
void rnn_sizes(const CudnnDescriptor &rnn, bool training, const RnnInput &input, size_t *workspace, size_t *reserve);

// Note [cuDNN's own RNN sizes]
// cuDNN has no device-property descriptor for recurrent networks, but its sizes of the standard algorithm come from the descriptors
// alone: with zeros in place of a handle cudnnGetRNNTempSpaceSizes (libcudnn_adv.so.9) writes both and fails only afterwards, when
// it asks the CUDA runtime for the current device. Seen in 9.10 and 9.19: the same answers whatever the handle's bytes are, and the
// reserve is the published one (Note [RNN sizes]) and 256 bytes more. Other versions may look into the handle and crash: a forked
// child asks first, and only where it came back with an answer is the library asked in this process.
// Asked is the library that plans (cudnn_real.h). False: there is none, or no answer came.
bool real_rnn_sizes(const CudnnDescriptor &rnn, bool training, const RnnInput &input, size_t *workspace, size_t *reserve);

}  // namespace gpumem::virtual_gpu::libraries
