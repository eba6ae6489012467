// SPDX-License-Identifier: Apache-2.0
// The operators with entries of their own (unboxed.h), by their names in at::_ops. Runs inside the job's Python, in probes only.
// The commonest in training steps of convolutional networks and transformers, with PyTorch's and transformers' optimizers.
#pragma once

#define GPUMEM_UNBOXED(X)                                                                                                             \
  X(empty_memory_format) X(empty_strided) X(copy_) X(_to_copy) X(clone) X(_local_scalar_dense) X(zero_) X(fill__Scalar) X(ones_like)  \
  X(zeros_like) X(neg) X(sqrt) X(rsqrt) X(reciprocal) X(relu) X(relu_) X(tanh) X(sigmoid) X(silu) X(cos) X(sin) X(exp) X(neg_)        \
  X(sqrt_) X(rsqrt_) X(add_Tensor) X(sub_Tensor) X(mul_Tensor) X(div_Tensor) X(maximum) X(minimum) X(add__Tensor) X(sub__Tensor)      \
  X(mul__Tensor) X(div__Tensor) X(mul_Scalar) X(pow_Tensor_Scalar) X(clamp) X(clamp_) X(clamp_min) X(clamp_min_) X(gt_Scalar)         \
  X(ge_Scalar) X(lt_Scalar) X(le_Scalar) X(eq_Scalar) X(ne_Scalar) X(lerp__Scalar) X(addcmul_) X(addcdiv_) X(sum) X(sum_dim_IntList)  \
  X(mean) X(mean_dim) X(linalg_vector_norm) X(mm) X(bmm) X(addmm) X(threshold_backward) X(tanh_backward) X(sigmoid_backward)          \
  X(silu_backward) X(gelu) X(gelu_backward) X(_softmax) X(_log_softmax) X(_softmax_backward_data) X(_log_softmax_backward_data)       \
  X(native_layer_norm) X(native_layer_norm_backward) X(native_dropout) X(native_dropout_backward) X(embedding) X(cat) X(convolution)  \
  X(convolution_backward) X(cudnn_batch_norm) X(cudnn_batch_norm_backward) X(_foreach_add__List) X(_foreach_add__Scalar)              \
  X(_foreach_add__ScalarList) X(_foreach_add__Tensor) X(_foreach_mul__Scalar) X(_foreach_mul__List) X(_foreach_div__Scalar)           \
  X(_foreach_div__List) X(_foreach_div__ScalarList) X(_foreach_lerp__Scalar) X(_foreach_addcmul__Scalar) X(_foreach_addcdiv__Scalar)  \
  X(_foreach_addcdiv__ScalarList) X(_foreach_sqrt) X(_foreach_sqrt_) X(_foreach_neg_)
