// SPDX-License-Identifier: Apache-2.0
// cuDNN's tensor, filter, convolution, pooling and smaller descriptors: what was set is what is got. In the job's processes.
#include "estimator/virtual_gpu/libraries/cudnn_descriptor.h"

#include <string.h>

#include "estimator/virtual_gpu/libraries/library.h"

namespace gpumem::virtual_gpu::libraries {

CudnnDescriptor *cudnn_descriptor(const void *pointer, CudnnDescriptorKind kind) {
  auto *descriptor = static_cast<CudnnDescriptor *>(const_cast<void *>(pointer));
  return descriptor != nullptr && descriptor->magic == kCudnnLiving && descriptor->kind == kind ? descriptor : nullptr;
}

size_t cudnn_element_bytes(int data_type) {
  switch (data_type) {
    case 1: case 10: return 8;                      // DOUBLE, INT64
    case 2: case 9: return 2;                       // HALF, BFLOAT16
    case 3: case 6: case 11: case 12: case 13: return 1;  // INT8, UINT8, BOOLEAN, FP8_E4M3, FP8_E5M2
    default: return 4;
  }
}

uint64_t cudnn_elements(const CudnnDescriptor &tensor) {
  uint64_t elements = tensor.dim_count > 0 ? 1 : 0;
  for (int i = 0; i < tensor.dim_count; i++) elements *= static_cast<uint64_t>(tensor.dims[i]);
  return elements;
}

void cudnn_set_packed(CudnnDescriptor &tensor, int data_type, int format, int dim_count, const int *dims) {
  tensor.data_type = data_type;
  tensor.format = format;
  tensor.dim_count = dim_count;
  memcpy(tensor.dims, dims, sizeof(int) * static_cast<size_t>(dim_count));
  int stride = 1;
  if (format == 1 && dim_count > 2) {  // channels last: dim 1 varies fastest
    tensor.strides[1] = 1;
    stride = dims[1];
    for (int i = dim_count - 1; i >= 2; i--) {
      tensor.strides[i] = stride;
      stride *= dims[i];
    }
    tensor.strides[0] = stride;
    return;
  }
  for (int i = dim_count - 1; i >= 0; i--) {
    tensor.strides[i] = stride;
    stride *= dims[i];
  }
}

namespace {

using Kind = CudnnDescriptorKind;

int create(void **out, Kind kind) {
  if (out == nullptr) return kCudnnBadParam;
  auto *descriptor = static_cast<CudnnDescriptor *>(allocate_zeroed(sizeof(CudnnDescriptor)));
  if (descriptor == nullptr) return kCudnnAllocFailed;
  descriptor->magic = kCudnnLiving;
  descriptor->kind = kind;
  if (kind == Kind::convolution) descriptor->numbers[3] = 1;  // one group
  *out = descriptor;
  return kCudnnSuccess;
}

int destroy(void *pointer, Kind kind) {
  if (pointer == nullptr) return kCudnnSuccess;
  CudnnDescriptor *descriptor = cudnn_descriptor(pointer, kind);
  if (descriptor == nullptr) return kCudnnBadParam;
  descriptor->magic = 0;
  release_zeroed(descriptor->owned);
  release_zeroed(descriptor);
  return kCudnnSuccess;
}

template <class T>
void give(T *out, T value) {
  if (out != nullptr) *out = value;
}

void give_many(int *out, const int *values, int count) {
  if (out != nullptr) memcpy(out, values, sizeof(int) * static_cast<size_t>(count));
}

bool dims_fit(int count, const int *dims) { return count > 0 && count <= kCudnnMaxDims && dims != nullptr; }

int set_tensor(void *pointer, int data_type, int count, const int *dims, const int *strides) {
  CudnnDescriptor *tensor = cudnn_descriptor(pointer, Kind::tensor);
  if (tensor == nullptr || !dims_fit(count, dims)) return kCudnnBadParam;
  cudnn_set_packed(*tensor, data_type, 0, count, dims);
  if (strides != nullptr) memcpy(tensor->strides, strides, sizeof(int) * static_cast<size_t>(count));
  return kCudnnSuccess;
}

int set_formatted(void *pointer, Kind kind, int format, int data_type, int count, const int *dims) {
  CudnnDescriptor *tensor = cudnn_descriptor(pointer, kind);
  if (tensor == nullptr || !dims_fit(count, dims)) return kCudnnBadParam;
  cudnn_set_packed(*tensor, data_type, format, count, dims);
  return kCudnnSuccess;
}

uint64_t bytes_of(const CudnnDescriptor &tensor) {
  if (tensor.dim_count == 0) return 0;
  uint64_t last = 0;  // offset of the last element
  for (int i = 0; i < tensor.dim_count; i++) last += static_cast<uint64_t>(tensor.dims[i] - 1) * static_cast<uint64_t>(tensor.strides[i]);
  return (last + 1) * cudnn_element_bytes(tensor.data_type);
}

// Convolution: numbers 0 mode, 1 compute type, 2 math type, 3 groups, 4 reorder type; dims = pads, strides = strides, from 8 = dilations.
constexpr int kDilations = 8;

int set_convolution(void *pointer, int count, const int *pads, const int *strides, const int *dilations, int mode, int type) {
  CudnnDescriptor *convolution = cudnn_descriptor(pointer, Kind::convolution);
  if (convolution == nullptr || !dims_fit(count, pads) || strides == nullptr || dilations == nullptr) return kCudnnBadParam;
  convolution->dim_count = count;
  size_t bytes = sizeof(int) * static_cast<size_t>(count);
  memcpy(convolution->dims, pads, bytes);
  memcpy(convolution->strides, strides, bytes);
  memcpy(convolution->numbers + kDilations, dilations, bytes);
  convolution->numbers[0] = mode;
  convolution->numbers[1] = type;
  return kCudnnSuccess;
}

// Output sizes by the formula of cudnnGetConvolutionNdForwardOutputDim.
int convolution_output(const void *pointer, const void *x_pointer, const void *w_pointer, int count, int *out) {
  const CudnnDescriptor *convolution = cudnn_descriptor(pointer, Kind::convolution);
  const CudnnDescriptor *x = cudnn_descriptor(x_pointer, Kind::tensor);
  const CudnnDescriptor *w = cudnn_descriptor(w_pointer, Kind::filter);
  if (convolution == nullptr || x == nullptr || w == nullptr || out == nullptr || x->dim_count != w->dim_count ||
      convolution->dim_count != x->dim_count - 2 || count < x->dim_count)
    return kCudnnBadParam;
  out[0] = x->dims[0];
  out[1] = w->dims[0];
  for (int i = 0; i < convolution->dim_count; i++) {
    if (convolution->strides[i] <= 0) return kCudnnBadParam;
    int extent = (w->dims[i + 2] - 1) * convolution->numbers[kDilations + i] + 1;
    out[i + 2] = 1 + (x->dims[i + 2] + 2 * convolution->dims[i] - extent) / convolution->strides[i];
  }
  return kCudnnSuccess;
}

// Pooling: numbers 0 mode, 1 NaN propagation, from 8 = pads; dims = window, strides = strides.
int set_pooling(void *pointer, int mode, int nan, int count, const int *window, const int *pads, const int *strides) {
  CudnnDescriptor *pooling = cudnn_descriptor(pointer, Kind::pooling);
  if (pooling == nullptr || !dims_fit(count, window) || pads == nullptr || strides == nullptr) return kCudnnBadParam;
  pooling->dim_count = count;
  size_t bytes = sizeof(int) * static_cast<size_t>(count);
  memcpy(pooling->dims, window, bytes);
  memcpy(pooling->numbers + 8, pads, bytes);
  memcpy(pooling->strides, strides, bytes);
  pooling->numbers[0] = mode;
  pooling->numbers[1] = nan;
  return kCudnnSuccess;
}

int set_numbers(void *pointer, Kind kind, int first, int second, int third, int fourth, double real) {
  CudnnDescriptor *descriptor = cudnn_descriptor(pointer, kind);
  if (descriptor == nullptr) return kCudnnBadParam;
  int values[] = {first, second, third, fourth};
  memcpy(descriptor->numbers, values, sizeof values);
  descriptor->reals[0] = real;
  return kCudnnSuccess;
}

int get_numbers(const void *pointer, Kind kind, int *first, int *second, int *third, int *fourth, double *real) {
  CudnnDescriptor *descriptor = cudnn_descriptor(pointer, kind);
  if (descriptor == nullptr) return kCudnnBadParam;
  give(first, descriptor->numbers[0]);
  give(second, descriptor->numbers[1]);
  give(third, descriptor->numbers[2]);
  give(fourth, descriptor->numbers[3]);
  give(real, descriptor->reals[0]);
  return kCudnnSuccess;
}

}  // namespace
}  // namespace gpumem::virtual_gpu::libraries

using namespace gpumem::virtual_gpu;
using namespace gpumem::virtual_gpu::libraries;

#define DESCRIPTOR(name, kind)                                                                   \
  GPUMEM_EXPORT int cudnnCreate##name##Descriptor(void **out) { return create(out, Kind::kind); } \
  GPUMEM_EXPORT int cudnnDestroy##name##Descriptor(void *pointer) { return destroy(pointer, Kind::kind); }
DESCRIPTOR(Tensor, tensor)
DESCRIPTOR(Filter, filter)
DESCRIPTOR(Convolution, convolution)
DESCRIPTOR(Pooling, pooling)
DESCRIPTOR(Activation, activation)
DESCRIPTOR(Dropout, dropout)
DESCRIPTOR(LRN, lrn)
DESCRIPTOR(OpTensor, op_tensor)
DESCRIPTOR(ReduceTensor, reduce_tensor)
DESCRIPTOR(CTCLoss, ctc_loss)
DESCRIPTOR(SpatialTransformer, spatial_transformer)
DESCRIPTOR(RNN, rnn)
DESCRIPTOR(RNNData, rnn_data)

GPUMEM_EXPORT int cudnnSetTensorNdDescriptor(void *pointer, int type, int count, const int *dims, const int *strides) {
  return strides == nullptr ? static_cast<int>(kCudnnBadParam) : set_tensor(pointer, type, count, dims, strides);
}
GPUMEM_EXPORT int cudnnSetTensorNdDescriptorEx(void *pointer, int format, int type, int count, const int *dims) {
  return set_formatted(pointer, Kind::tensor, format, type, count, dims);
}
GPUMEM_EXPORT int cudnnSetTensor4dDescriptor(void *pointer, int format, int type, int n, int c, int h, int w) {
  int dims[] = {n, c, h, w};
  return set_formatted(pointer, Kind::tensor, format, type, 4, dims);
}
GPUMEM_EXPORT int cudnnSetTensor4dDescriptorEx(void *pointer, int type, int n, int c, int h, int w, int n_stride, int c_stride,
                                               int h_stride, int w_stride) {
  int dims[] = {n, c, h, w}, strides[] = {n_stride, c_stride, h_stride, w_stride};
  return set_tensor(pointer, type, 4, dims, strides);
}
GPUMEM_EXPORT int cudnnGetTensorNdDescriptor(const void *pointer, int requested, int *type, int *count, int *dims, int *strides) {
  CudnnDescriptor *tensor = cudnn_descriptor(pointer, Kind::tensor);
  if (tensor == nullptr) return kCudnnBadParam;
  int given = requested < tensor->dim_count ? requested : tensor->dim_count;
  give(type, tensor->data_type);
  give(count, tensor->dim_count);
  if (given > 0) give_many(dims, tensor->dims, given), give_many(strides, tensor->strides, given);
  return kCudnnSuccess;
}
GPUMEM_EXPORT int cudnnGetTensor4dDescriptor(const void *pointer, int *type, int *n, int *c, int *h, int *w, int *n_stride,
                                             int *c_stride, int *h_stride, int *w_stride) {
  CudnnDescriptor *tensor = cudnn_descriptor(pointer, Kind::tensor);
  if (tensor == nullptr || tensor->dim_count > 4) return kCudnnBadParam;
  int *dims[] = {n, c, h, w}, *strides[] = {n_stride, c_stride, h_stride, w_stride};
  give(type, tensor->data_type);
  for (int i = 0; i < 4; i++) give(dims[i], i < tensor->dim_count ? tensor->dims[i] : 1), give(strides[i], i < tensor->dim_count ? tensor->strides[i] : 1);
  return kCudnnSuccess;
}
GPUMEM_EXPORT int cudnnGetTensorSizeInBytes(const void *pointer, size_t *bytes) {
  CudnnDescriptor *tensor = cudnn_descriptor(pointer, Kind::tensor);
  if (tensor == nullptr || bytes == nullptr) return kCudnnBadParam;
  *bytes = bytes_of(*tensor);
  return kCudnnSuccess;
}

GPUMEM_EXPORT int cudnnSetFilterNdDescriptor(void *pointer, int type, int format, int count, const int *dims) {
  return set_formatted(pointer, Kind::filter, format, type, count, dims);
}
GPUMEM_EXPORT int cudnnSetFilter4dDescriptor(void *pointer, int type, int format, int k, int c, int h, int w) {
  int dims[] = {k, c, h, w};
  return set_formatted(pointer, Kind::filter, format, type, 4, dims);
}
GPUMEM_EXPORT int cudnnGetFilterNdDescriptor(const void *pointer, int requested, int *type, int *format, int *count, int *dims) {
  CudnnDescriptor *filter = cudnn_descriptor(pointer, Kind::filter);
  if (filter == nullptr) return kCudnnBadParam;
  int given = requested < filter->dim_count ? requested : filter->dim_count;
  give(type, filter->data_type);
  give(format, filter->format);
  give(count, filter->dim_count);
  if (given > 0) give_many(dims, filter->dims, given);
  return kCudnnSuccess;
}
GPUMEM_EXPORT int cudnnGetFilter4dDescriptor(const void *pointer, int *type, int *format, int *k, int *c, int *h, int *w) {
  CudnnDescriptor *filter = cudnn_descriptor(pointer, Kind::filter);
  if (filter == nullptr || filter->dim_count != 4) return kCudnnBadParam;
  int *dims[] = {k, c, h, w};
  give(type, filter->data_type);
  give(format, filter->format);
  for (int i = 0; i < 4; i++) give(dims[i], filter->dims[i]);
  return kCudnnSuccess;
}
GPUMEM_EXPORT int cudnnGetFilterSizeInBytes(const void *pointer, size_t *bytes) {
  CudnnDescriptor *filter = cudnn_descriptor(pointer, Kind::filter);
  if (filter == nullptr || bytes == nullptr) return kCudnnBadParam;
  *bytes = bytes_of(*filter);
  return kCudnnSuccess;
}

GPUMEM_EXPORT int cudnnSetConvolutionNdDescriptor(void *pointer, int count, const int *pads, const int *strides,
                                                  const int *dilations, int mode, int type) {
  return set_convolution(pointer, count, pads, strides, dilations, mode, type);
}
GPUMEM_EXPORT int cudnnSetConvolution2dDescriptor(void *pointer, int pad_h, int pad_w, int u, int v, int dilation_h,
                                                  int dilation_w, int mode, int type) {
  int pads[] = {pad_h, pad_w}, strides[] = {u, v}, dilations[] = {dilation_h, dilation_w};
  return set_convolution(pointer, 2, pads, strides, dilations, mode, type);
}
GPUMEM_EXPORT int cudnnGetConvolutionNdDescriptor(const void *pointer, int requested, int *count, int *pads, int *strides,
                                                  int *dilations, int *mode, int *type) {
  CudnnDescriptor *convolution = cudnn_descriptor(pointer, Kind::convolution);
  if (convolution == nullptr) return kCudnnBadParam;
  int given = requested < convolution->dim_count ? requested : convolution->dim_count;
  give(count, convolution->dim_count);
  if (given > 0) {
    give_many(pads, convolution->dims, given);
    give_many(strides, convolution->strides, given);
    give_many(dilations, convolution->numbers + kDilations, given);
  }
  give(mode, convolution->numbers[0]);
  give(type, convolution->numbers[1]);
  return kCudnnSuccess;
}

#define CONVOLUTION_NUMBER(name, index)                                             \
  GPUMEM_EXPORT int cudnnSetConvolution##name(void *pointer, int value) {           \
    CudnnDescriptor *convolution = cudnn_descriptor(pointer, Kind::convolution);    \
    if (convolution == nullptr) return kCudnnBadParam;                              \
    convolution->numbers[index] = value;                                            \
    return kCudnnSuccess;                                                           \
  }                                                                                 \
  GPUMEM_EXPORT int cudnnGetConvolution##name(const void *pointer, int *value) {    \
    CudnnDescriptor *convolution = cudnn_descriptor(pointer, Kind::convolution);    \
    if (convolution == nullptr || value == nullptr) return kCudnnBadParam;          \
    *value = convolution->numbers[index];                                           \
    return kCudnnSuccess;                                                           \
  }
CONVOLUTION_NUMBER(MathType, 2)
CONVOLUTION_NUMBER(GroupCount, 3)
CONVOLUTION_NUMBER(ReorderType, 4)

GPUMEM_EXPORT int cudnnGetConvolutionNdForwardOutputDim(const void *pointer, const void *x, const void *w, int count, int *dims) {
  return convolution_output(pointer, x, w, count, dims);
}
GPUMEM_EXPORT int cudnnGetConvolution2dForwardOutputDim(const void *pointer, const void *x, const void *w, int *n, int *c, int *h,
                                                        int *width) {
  int dims[kCudnnMaxDims] = {};
  int status = convolution_output(pointer, x, w, 4, dims);
  if (status != kCudnnSuccess) return status;
  give(n, dims[0]), give(c, dims[1]), give(h, dims[2]), give(width, dims[3]);
  return kCudnnSuccess;
}

GPUMEM_EXPORT int cudnnSetPoolingNdDescriptor(void *pointer, int mode, int nan, int count, const int *window, const int *pads,
                                              const int *strides) {
  return set_pooling(pointer, mode, nan, count, window, pads, strides);
}
GPUMEM_EXPORT int cudnnSetPooling2dDescriptor(void *pointer, int mode, int nan, int window_h, int window_w, int pad_h, int pad_w,
                                              int stride_h, int stride_w) {
  int window[] = {window_h, window_w}, pads[] = {pad_h, pad_w}, strides[] = {stride_h, stride_w};
  return set_pooling(pointer, mode, nan, 2, window, pads, strides);
}
GPUMEM_EXPORT int cudnnGetPooling2dDescriptor(const void *pointer, int *mode, int *nan, int *window_h, int *window_w, int *pad_h,
                                              int *pad_w, int *stride_h, int *stride_w) {
  CudnnDescriptor *pooling = cudnn_descriptor(pointer, Kind::pooling);
  if (pooling == nullptr || pooling->dim_count != 2) return kCudnnBadParam;
  give(mode, pooling->numbers[0]), give(nan, pooling->numbers[1]);
  give(window_h, pooling->dims[0]), give(window_w, pooling->dims[1]);
  give(pad_h, pooling->numbers[8]), give(pad_w, pooling->numbers[9]);
  give(stride_h, pooling->strides[0]), give(stride_w, pooling->strides[1]);
  return kCudnnSuccess;
}
GPUMEM_EXPORT int cudnnGetPoolingNdDescriptor(const void *pointer, int requested, int *mode, int *nan, int *count, int *window,
                                              int *pads, int *strides) {
  CudnnDescriptor *pooling = cudnn_descriptor(pointer, Kind::pooling);
  if (pooling == nullptr) return kCudnnBadParam;
  int given = requested < pooling->dim_count ? requested : pooling->dim_count;
  give(mode, pooling->numbers[0]), give(nan, pooling->numbers[1]), give(count, pooling->dim_count);
  if (given > 0) give_many(window, pooling->dims, given), give_many(pads, pooling->numbers + 8, given), give_many(strides, pooling->strides, given);
  return kCudnnSuccess;
}

GPUMEM_EXPORT int cudnnSetActivationDescriptor(void *pointer, int mode, int nan, double coefficient) {
  return set_numbers(pointer, Kind::activation, mode, nan, 0, 0, coefficient);
}
GPUMEM_EXPORT int cudnnGetActivationDescriptor(const void *pointer, int *mode, int *nan, double *coefficient) {
  return get_numbers(pointer, Kind::activation, mode, nan, nullptr, nullptr, coefficient);
}
GPUMEM_EXPORT int cudnnSetOpTensorDescriptor(void *pointer, int operation, int type, int nan) {
  return set_numbers(pointer, Kind::op_tensor, operation, type, nan, 0, 0);
}
GPUMEM_EXPORT int cudnnGetOpTensorDescriptor(const void *pointer, int *operation, int *type, int *nan) {
  return get_numbers(pointer, Kind::op_tensor, operation, type, nan, nullptr, nullptr);
}
GPUMEM_EXPORT int cudnnSetCTCLossDescriptor(void *pointer, int type) { return set_numbers(pointer, Kind::ctc_loss, type, 0, 0, 0, 0); }
GPUMEM_EXPORT int cudnnGetCTCLossDescriptor(const void *pointer, int *type) {
  return get_numbers(pointer, Kind::ctc_loss, type, nullptr, nullptr, nullptr, nullptr);
}
GPUMEM_EXPORT int cudnnSetCTCLossDescriptorEx(void *pointer, int type, int normalization, int mode) {
  return set_numbers(pointer, Kind::ctc_loss, type, normalization, mode, 0, 0);
}
GPUMEM_EXPORT int cudnnGetCTCLossDescriptorEx(const void *pointer, int *type, int *normalization, int *mode) {
  return get_numbers(pointer, Kind::ctc_loss, type, normalization, mode, nullptr, nullptr);
}
#define CTC_WITH_LENGTH(version)                                                                                                       \
  GPUMEM_EXPORT int cudnnSetCTCLossDescriptor_##version(void *pointer, int type, int normalization, int mode, int length) {            \
    return set_numbers(pointer, Kind::ctc_loss, type, normalization, mode, length, 0);                                                 \
  }                                                                                                                                    \
  GPUMEM_EXPORT int cudnnGetCTCLossDescriptor_##version(const void *pointer, int *type, int *normalization, int *mode, int *length) {  \
    return get_numbers(pointer, Kind::ctc_loss, type, normalization, mode, length, nullptr);                                           \
  }
CTC_WITH_LENGTH(v8)
CTC_WITH_LENGTH(v9)
GPUMEM_EXPORT int cudnnSetSpatialTransformerNdDescriptor(void *pointer, int sampler, int type, int count, const int *dims) {
  CudnnDescriptor *descriptor = cudnn_descriptor(pointer, Kind::spatial_transformer);
  if (descriptor == nullptr || !dims_fit(count, dims)) return kCudnnBadParam;
  cudnn_set_packed(*descriptor, type, 0, count, dims);
  descriptor->numbers[0] = sampler;
  return kCudnnSuccess;
}
