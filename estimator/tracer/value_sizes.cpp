// SPDX-License-Identifier: Apache-2.0
// See value_sizes.h. Layouts follow what the CUDA kernels return: nonzero's rows are a transposed (dimensions, n) block.

#include "value_sizes.h"

#include "cpu_run.h"
#include "storage_states.h"

#include <numeric>

namespace gpumem::tracer {
namespace {

at::Tensor device_empty(at::IntArrayRef sizes, c10::ScalarType dtype, c10::Device device) {
  static const auto empty = c10::Dispatcher::singleton().findSchemaOrThrow("aten::empty", "memory_format");
  torch::jit::Stack stack{sizes.vec(), dtype, c10::IValue(), device, c10::IValue(), c10::IValue()};
  empty.callBoxed(&stack);
  return stack.back().toTensor();
}

at::Tensor nonzero(const at::Tensor& self, int64_t rows) {
  at::Tensor out = device_empty({self.dim(), rows}, c10::kLong, self.device());
  out.unsafeGetTensorImpl()->set_sizes_and_strides(at::IntArrayRef{rows, self.dim()}, at::IntArrayRef{1, rows});
  return out;
}

// The indices of all elements, as what follows from "all of them" must fit together: of all proposals a sampler then still
// draws as many as it was told to.
void list_all(const at::Tensor& rows, const at::Tensor& self) {
  if (!is_small(rows) || rows.numel() == 0) return;
  auto* data = reinterpret_cast<int64_t*>(bytes_of(rows));
  const int64_t count = rows.size(0);
  int64_t inner = 1;
  for (int64_t d = self.dim() - 1; d >= 0; inner *= self.size(d), d--)
    for (int64_t i = 0; i < count; i++) data[d * count + i] = i / inner % self.size(d);
  set_state(rows, State::exact);
}

void settle(const at::Tensor& device, const c10::IValue* exact) {
  if (!is_small(device) || device.numel() == 0) return;
  bool real = exact && exact->isTensor() && write_device(device, exact->toTensor());
  if (!real && !is_fillable(device)) return;
  if (!real) std::memset(bytes_of(device), 0, storage_of(device)->nbytes());
  set_state(device, real ? State::exact : State::plausible);
}

}  // namespace

void answer_size(Operator& op, torch::jit::Stack& stack, size_t first, torch::jit::Stack* exact) {
  const at::Tensor self = stack[first].toTensor();
  if (!exact) count_guess(op, Guess::size);
  std::vector<at::Tensor> results;
  if (op.name == "aten::nonzero") {
    results.push_back(nonzero(self, exact ? exact->at(0).toTensor().size(0) : self.numel()));
  } else {
    // unique_dim and unique_dim_consecutive keep the other dimensions; the rest flatten.
    bool by_dimension = op.name.find("unique_dim") != std::string::npos;
    int64_t dimension = by_dimension ? stack[first + 1].toInt() : 0;
    if (dimension < 0) dimension += self.dim();
    std::vector<int64_t> sizes = by_dimension ? self.sizes().vec() : std::vector<int64_t>{self.numel()};
    int64_t elements = by_dimension && self.dim() ? self.size(dimension) : self.numel();
    // The kernels sort a copy of the values with their indices, and return the front of it in place.
    at::Tensor sorted = device_empty(sizes, self.scalar_type(), self.device());
    { at::Tensor indices = device_empty({elements}, c10::kLong, self.device()); }
    if (exact) {
      const at::Tensor& values = exact->at(0).toTensor();
      sorted.unsafeGetTensorImpl()->set_sizes_contiguous(values.sizes());
    }
    results.push_back(sorted);
    int64_t different = exact ? exact->at(0).toTensor().size(by_dimension ? dimension : 0) : elements;
    for (size_t i = 1; i < op.returns; i++) {
      // (values, inverse, counts): what was not asked for is empty, which the CPU's answer shows where there is one.
      bool counts = i == 2;
      auto flag = [&](const char* name) {
        const auto& arguments = static_cast<const c10::FunctionSchema*>(op.schema)->arguments();
        for (size_t a = 0; a < arguments.size(); a++)
          if (arguments[a].name() == name) return stack[first + a].toBool();
        return true;
      };
      std::vector<int64_t> shape{0};
      if (exact && exact->at(i).isTensor())
        shape = exact->at(i).toTensor().sizes().vec();
      else if (flag(counts ? "return_counts" : "return_inverse"))
        shape = counts ? std::vector<int64_t>{different} : by_dimension ? std::vector<int64_t>{elements} : self.sizes().vec();
      results.push_back(device_empty(shape, c10::kLong, self.device()));
    }
  }
  for (size_t i = 0; i < results.size(); i++) settle(results[i], exact ? &exact->at(i) : nullptr);
  if (!exact && op.name == "aten::nonzero") list_all(results[0], self);
  stack.erase(stack.begin() + first, stack.end());
  for (at::Tensor& t : results) stack.emplace_back(std::move(t));
}

}  // namespace gpumem::tracer
