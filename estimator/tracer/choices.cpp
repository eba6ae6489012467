// SPDX-License-Identifier: Apache-2.0
// See choices.h.

#include "choices.h"

#include "cpu_run.h"
#include "storage_states.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <vector>

namespace gpumem::tracer {
namespace {

at::Tensor allocated(at::IntArrayRef sizes, const at::Tensor& like) { return at::empty(sizes, like.options()); }

// Rows of a contiguous (dimensions, n) block of indices as one number each.
std::vector<int64_t> flattened(const at::Tensor& indices, at::IntArrayRef sizes) {
  const int64_t dimensions = indices.size(0), count = indices.size(1);
  std::vector<int64_t> flat(count, 0);
  const at::Tensor alias = alias_on_cpu(indices);
  const int64_t* data = alias.const_data_ptr<int64_t>();
  for (int64_t d = 0; d < dimensions; d++)
    for (int64_t i = 0; i < count; i++) flat[i] = flat[i] * sizes[d] + data[d * alias.stride(0) + i * alias.stride(1)];
  return flat;
}

bool is_known(const at::Tensor& t) { return is_small(t) && state_of(t) == State::exact; }

// The sums of the values that share an index, where everything is small and known.
void write_sums(const at::Tensor& to, const at::Tensor& values, const std::vector<int64_t>& flat, const std::vector<int64_t>& different) {
  if (!is_known(values) || !is_small(to)) return;
  std::vector<int64_t> place(flat.size());
  for (size_t i = 0; i < flat.size(); i++)
    place[i] = std::lower_bound(different.begin(), different.end(), flat[i]) - different.begin();
  try {
    Unseen unseen;
    at::Tensor from = alias_on_cpu(values).contiguous();
    at::Tensor sums = at::zeros(to.sizes(), from.options());
    sums.index_add_(0, at::tensor(place, at::TensorOptions(at::kLong)), from);
    if (write_device(to, sums)) set_state(to, State::exact);
  } catch (const std::exception&) {  // a type that the host cannot add: its values stay unknown
  }
}

}  // namespace

bool spread_choice(Operator& op, c10::ArrayRef<c10::IValue> arguments, c10::IValue* returns) {
  const size_t which = op.choice == Choice::second ? 1 : 0;
  if (op.choice == Choice::none || arguments.empty() || !arguments[0].isTensor() || which >= op.returns || !returns[which].isTensor()) return false;
  const at::Tensor &from = arguments[0].toTensor(), &to = returns[which].toTensor();
  if (!to.defined() || !to.is_cuda() || to.scalar_type() != c10::kLong || !is_small(to) || !to.is_contiguous() || from.dim() == 0) return false;
  // topk(self, k, dim), max(self, dim), argmax(self, dim or None)
  const size_t at_dim = op.choice_k ? 2 : 1;
  const bool whole = arguments.size() <= at_dim || !arguments[at_dim].isInt();
  int64_t dim = whole ? 0 : arguments[at_dim].toInt();
  if (dim < 0) dim += from.dim();
  const int64_t choices = whole ? from.numel() : from.size(dim), count = to.numel();
  if (choices <= 0) return false;
  const int64_t chosen = op.choice_k && to.dim() == from.dim() ? to.size(dim) : 1;
  int64_t inner = 1;
  if (op.choice_k)
    for (int64_t d = dim + 1; d < to.dim(); d++) inner *= to.size(d);
  auto* data = reinterpret_cast<int64_t*>(bytes_of(to)) + to.storage_offset();
  for (int64_t i = 0; i < count; i++) {
    const int64_t row = i / (inner * chosen) * inner + i % inner, place = i / inner % chosen;
    data[i] = (row * chosen + place) % choices;
  }
  set_state(to, State::exact);
  count_guess(op, Guess::scalar);
  return true;
}

bool answer_coalesce(Operator& op, torch::jit::Stack& stack, size_t first) {
  const at::Tensor self = stack[first].toTensor();
  if (!self.is_cuda() || !self.is_sparse()) return false;
  c10::impl::ExcludeDispatchKeyGuard guard(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
  if (self.is_coalesced() || self._nnz() < 2) return false;
  const at::Tensor indices = self._indices(), values = self._values();
  const int64_t count = self._nnz(), dimensions = self.sparse_dim();
  std::vector<int64_t> flat, different;
  const bool exact = is_known(indices);
  if (exact) {
    flat = flattened(indices, self.sizes());
    different = flat;
    std::sort(different.begin(), different.end());
    different.erase(std::unique(different.begin(), different.end()), different.end());
  } else {
    count_guess(op, Guess::size);
  }
  const int64_t kept = exact ? static_cast<int64_t>(different.size()) : count;

  at::Tensor keys = allocated({count}, indices), order = allocated({count}, indices), offsets = allocated({count}, indices);
  { at::Tensor sorting = allocated({2 * count}, indices); }
  std::vector<int64_t> sizes = values.sizes().vec();
  sizes[0] = kept;
  at::Tensor new_values = allocated(sizes, values);
  at::Tensor contiguous = values.contiguous();
  at::Tensor new_indices = dimensions == 1 ? keys.narrow(0, 0, kept).unsqueeze(0) : allocated({dimensions, kept}, indices);
  if (exact && is_small(new_indices)) {
    auto* data = reinterpret_cast<int64_t*>(bytes_of(new_indices)) + new_indices.storage_offset();
    for (int64_t i = 0; i < kept; i++) {
      int64_t rest = different[i];
      for (int64_t d = dimensions - 1; d >= 0; d--) {
        data[d * kept + i] = rest % self.size(d);
        rest /= self.size(d);
      }
    }
    set_state(new_indices, State::exact);
  }
  if (exact) write_sums(new_values, contiguous, flat, different);
  at::Tensor result = at::_sparse_coo_tensor_with_dims_and_tensors(dimensions, self.dense_dim(), self.sizes(), new_indices, new_values, self.options());
  result._coalesced_(true);
  stack.erase(stack.begin() + first, stack.end());
  stack.emplace_back(std::move(result));
  return true;
}

}  // namespace gpumem::tracer
