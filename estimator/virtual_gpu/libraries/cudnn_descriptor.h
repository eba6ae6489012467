// SPDX-License-Identifier: Apache-2.0
// The descriptors of cuDNN's older interfaces (tensor, filter, convolution, …): one shape for all, numbers kept as set.
// Owned by the program between Create and Destroy. A descriptor is used by one thread at a time, as in cuDNN.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace gpumem::virtual_gpu::libraries {

enum CudnnStatus : int {
  kCudnnSuccess = 0,
  kCudnnNotInitialized = 1001,
  kCudnnAllocFailed = 1003,
  kCudnnBadParam = 2000,
};

enum class CudnnDescriptorKind : uint32_t {
  tensor = 1, filter, convolution, pooling, activation, dropout, lrn, op_tensor, reduce_tensor, ctc_loss,
  spatial_transformer, rnn, rnn_data,
};

constexpr int kCudnnMaxDims = 8;  // CUDNN_DIM_MAX
constexpr uint32_t kCudnnLiving = 0x63444e4e;

struct CudnnDescriptor {
  uint32_t magic;  // kCudnnLiving
  CudnnDescriptorKind kind;
  int data_type;                 // cudnnDataType_t
  int format;                    // cudnnTensorFormat_t
  int dim_count;
  int dims[kCudnnMaxDims];
  int strides[kCudnnMaxDims];
  int numbers[24];               // modes and the like; each interface names its own
  double reals[4];
  void *pointers[2];
  void *owned;                   // from allocate_zeroed; released with the descriptor
};

// The descriptor if it is a living one of that kind, else nullptr.
CudnnDescriptor *cudnn_descriptor(const void *pointer, CudnnDescriptorKind kind);
// Bytes of one element of a cudnnDataType_t.
size_t cudnn_element_bytes(int data_type);
uint64_t cudnn_elements(const CudnnDescriptor &tensor);
// Sets dims and the strides of a packed tensor in that order (0 NCHW, 1 NHWC).
void cudnn_set_packed(CudnnDescriptor &tensor, int data_type, int format, int dim_count, const int *dims);

}  // namespace gpumem::virtual_gpu::libraries
