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
// `rows`: time steps and sequences, `batch`: the most sequences of a time step. Notes the guess.
void rnn_sizes(const CudnnDescriptor &rnn, bool training, uint64_t rows, uint64_t batch, size_t *workspace, size_t *reserve);

}  // namespace gpumem::virtual_gpu::libraries
