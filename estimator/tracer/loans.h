// SPDX-License-Identifier: Apache-2.0
// CPU tensors that stand for device tensors while a CPU kernel runs, used again and again. In the job's Python, in probes only.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>

namespace gpumem::tracer {

inline constexpr c10::DispatchKeySet kCpu(c10::DispatchKey::CPU);

// A CPU tensor over the same bytes as a device tensor, with the same sizes and strides. Does not own the bytes.
at::Tensor alias_on_cpu(const at::Tensor& device);

// Note [Loans]
// Making a tensor and its storage takes five allocations, which costs more than most small kernels. So those that only a CPU
// kernel saw are kept on the thread's shelf, and the next one gets them with other bytes, sizes and type. A kernel that keeps
// one (a result that is a view of it) keeps it for good.
struct Loan {
  at::Tensor tensor;
  std::unique_ptr<char[]> bytes;  // where the tensor is a copy
  size_t capacity = 0;
};

// `copy`: of the whole storage; else over the device's own bytes.
Loan borrow(const at::Tensor& device, bool copy);
// Another tensor over the same copy.
Loan borrow_view(const at::Tensor& device, const Loan& copy);
void give_back(Loan loan);

}  // namespace gpumem::tracer
