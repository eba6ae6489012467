// SPDX-License-Identifier: Apache-2.0
// Runs an operator's CPU kernel over the addresses of small device tensors. Runs inside the job's Python, in probes only.
#pragma once

#include "loans.h"
#include "operators.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <c10/util/SmallVector.h>

#include <optional>

namespace gpumem::tracer {

// The tensors of one IValue (a tensor, a list, an optional list), undefined ones left out.
template <typename Visit>
void each_tensor(const c10::IValue& value, Visit&& visit) {
  if (value.isTensor()) {
    const at::Tensor& t = value.toTensor();
    if (t.defined()) visit(t);
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef())
      if (element.isTensor() && element.toTensor().defined()) visit(element.toTensor());
  }
}

// A copy of the value with each of its tensors replaced by what `change` makes of it, and a device by `device` where given.
template <typename Change>
c10::IValue with_tensors(const c10::IValue& v, Change&& change, std::optional<c10::Device> device) {
  if (v.isTensor()) return v.toTensor().defined() ? at::Tensor(change(v.toTensor())) : v.toTensor();
  if (v.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const c10::IValue& t : v.toListRef()) list.push_back(t.toTensor().defined() ? at::Tensor(change(t.toTensor())) : t.toTensor());
    return list;
  }
  if (v.isOptionalTensorList()) {
    using OptionalTensor = decltype(v.toOptionalTensorVector())::value_type;  // c10's own optional before 2.4
    c10::List<OptionalTensor> list;
    for (const c10::IValue& t : v.toListRef())
      list.push_back(t.isTensor() ? OptionalTensor(t.toTensor().defined() ? at::Tensor(change(t.toTensor())) : t.toTensor()) : OptionalTensor());
    return list;
  }
  if (v.isDevice() && device) return *device;
  return v;
}

// Blocks for its lifetime whatever would see, differentiate or follow the operators inside, and keeps them on this thread:
// waking OpenMP's threads costs more than any small operation.
class Unseen {
 public:
  Unseen();
  ~Unseen();
  Unseen(const Unseen&) = delete;
  Unseen& operator=(const Unseen&) = delete;

 private:
  c10::impl::ExcludeDispatchKeyGuard guard_;
  int threads_;
};

// An operator's arguments, kept for when they have left the stack.
using Arguments = c10::SmallVector<c10::IValue, 8>;
inline Arguments arguments_on(const torch::jit::Stack& stack, size_t first) { return Arguments(stack.begin() + first, stack.end()); }

// Arguments for the CPU kernel, taken before the device's own kernel runs.
//
// Note [In place, once]
// A device kernel may call other operators that are followed and so have really run. An operator that writes its arguments
// would then be applied twice. So its CPU kernel works on copies of its tensors, taken before, and the results are
// written over whatever the device's path has left. Operators that write nothing read the device's bytes themselves; so do, and
// change them, those whose device kernel was seen to call no others (Operator::nesting): copies cost more than most kernels. Where
// it then does call some after all (a foreach operator one by one), these have followed it.
class CpuRun {
 public:
  // `copies`: taken before the device's kernel runs, else all is over the device's own bytes.
  CpuRun(const Operator& op, c10::ArrayRef<c10::IValue> arguments, bool copies);
  ~CpuRun();
  CpuRun(const CpuRun&) = delete;
  CpuRun& operator=(const CpuRun&) = delete;

  // Runs the kernel. False where the CPU has none for these types or it refuses the values: nothing was changed then.
  bool run(const c10::OperatorHandle& handle, Operator& op);

  // Copies what was computed to the device tensors: written arguments, then returns. `device_arguments` are the original
  // arguments, `device_returns` the device's own. False where a size differs, as no bytes could be right.
  bool deliver(const Operator& op, c10::ArrayRef<c10::IValue> device_arguments, c10::IValue* device_returns);

  c10::IValue& result(size_t i) { return results_[i]; }

 private:
  torch::jit::Stack arguments_, results_;
  const bool copies_;
  c10::SmallVector<Loan, 4> loans_;
};

// copy_ between CPU tensors, converting and broadcasting. False where the CPU has no kernel for the types.
bool copy_on_host(const at::Tensor& to, const at::Tensor& from);

// Copies the elements of a CPU tensor into a device tensor of the same sizes, converting the type. False: sizes differ.
bool write_device(const at::Tensor& device, const at::Tensor& cpu);

// Fills a small device tensor with what keeps a program healthy: 1 for floating point, 0 or `flag` for the others.
void fill_plausible(const at::Tensor& device, bool flag = false);

}  // namespace gpumem::tracer
