// SPDX-License-Identifier: Apache-2.0
// See sparse.h.

#include "sparse.h"

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

// The operator's answer in place of its arguments on the stack; false: leave it to PyTorch.
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

bool is_compressed(const at::Tensor& t) {
  const auto layout = t.layout();
  return layout == c10::kSparseCsr || layout == c10::kSparseCsc || layout == c10::kSparseBsr || layout == c10::kSparseBsc;
}
bool is_sparse(const at::Tensor& t) { return t.layout() == c10::kSparse || is_compressed(t); }
bool by_columns(const at::Tensor& t) { return t.layout() == c10::kSparseCsc || t.layout() == c10::kSparseBsc; }

// The dense tensors that a sparse one is made of; itself, where it is dense. None where it is something else.
std::vector<at::Tensor> parts_of(const at::Tensor& t) {
  if (t.layout() == c10::kStrided && t.has_storage() && !t.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) return {t};
  if (t.layout() == c10::kSparse) return {t._indices(), t._values()};
  if (is_compressed(t))
    return by_columns(t) ? std::vector<at::Tensor>{t.ccol_indices(), t.row_indices(), t.values()}
                         : std::vector<at::Tensor>{t.crow_indices(), t.col_indices(), t.values()};
  return {};
}

at::Tensor copied(const at::Tensor& device) { return device.is_cuda() ? alias_on_cpu(device).clone() : device; }

at::Tensor on_cpu(const at::Tensor& t) {
  if (!is_sparse(t)) return copied(t);
  const auto parts = parts_of(t);
  const auto options = at::TensorOptions(t.scalar_type()).device(c10::kCPU).layout(t.layout());
  if (is_compressed(t)) return at::_sparse_compressed_tensor_unsafe(copied(parts[0]), copied(parts[1]), copied(parts[2]), t.sizes(), options);
  at::Tensor made = at::_sparse_coo_tensor_unsafe(copied(parts[0]), copied(parts[1]), t.sizes(), options);
  made._coalesced_(t.is_coalesced());
  return made;
}

// Writes a CPU tensor's elements over those of the device tensor of the same make. False where these differ in number.
bool write_over(const at::Tensor& device, const at::Tensor& cpu) {
  const auto to = parts_of(device), from = parts_of(cpu);
  bool same = !to.empty() && to.size() == from.size() && device.layout() == cpu.layout();
  for (size_t i = 0; same && i < to.size(); i++) same = to[i].sizes() == from[i].sizes() && is_small(to[i]);
  for (size_t i = 0; same && i < to.size(); i++) {
    same = write_device(to[i], from[i]);
    if (same && (covers_storage(to[i]) || state_of(to[i]) != State::unknown)) set_state(to[i], State::exact);
  }
  return same;
}

void lower(const at::Tensor& t) {
  for (const at::Tensor& part : parts_of(t))
    if (part.is_cuda() && is_small(part) && part.is_floating_point()) set_state(part, State::plausible);
}

int64_t pools_of(const at::Tensor& self, int64_t dim, bool exact) {
  if (!exact) return self._nnz();
  std::vector<int64_t> sizes = self.sizes().vec();
  at::Tensor indices = alias_on_cpu(self._indices()).clone();
  indices.select(0, dim).zero_();
  const int64_t count = indices.size(1);
  std::vector<int64_t> flat(count, 0);
  const int64_t* data = indices.const_data_ptr<int64_t>();
  for (int64_t d = 0; d < indices.size(0); d++)
    for (int64_t i = 0; i < count; i++) flat[i] = flat[i] * sizes[d] + data[d * indices.stride(0) + i * indices.stride(1)];
  std::sort(flat.begin(), flat.end());
  return std::unique(flat.begin(), flat.end()) - flat.begin();
}

// What a softmax takes for its pools.
std::vector<at::Tensor> memory_for_pools(Operator& op, const torch::jit::Stack& stack, size_t first) {
  const size_t dim_at = op.is_softmax_backward ? 2 : 1;
  const at::Tensor self = stack[first + dim_at - 1].toTensor();
  int64_t dim = stack[first + dim_at].toInt();
  if (dim < 0) dim += self.dim();
  if (self.layout() != c10::kSparse || dim >= self.sparse_dim()) return {};
  const bool exact = is_known(self._indices());
  if (!exact) count_guess(op, Guess::size);
  const int64_t pools = pools_of(self, dim, exact);
  std::vector<at::Tensor> held{allocated({pools}, self._indices())};
  if (!op.is_softmax_backward && self._nnz() > 0) held.push_back(allocated({pools * (self._values().numel() / self._nnz())}, self._values()));
  return held;
}

}  // namespace

void follow_sparse(const c10::OperatorHandle& handle, Operator& op, c10::DispatchKeySet rest, torch::jit::Stack* stack, size_t first) {
  if (op.kind == Kind::coalesces) {
    if (!answer_coalesce(op, *stack, first)) handle.redispatchBoxed(rest, stack);
    return;
  }
  std::vector<at::Tensor> pools;
  if (op.is_softmax || op.is_softmax_backward) pools = memory_for_pools(op, *stack, first);

  const Arguments arguments = arguments_on(*stack, first);
  bool known = op.returns_tensor || op.writes;
  for (size_t i = 0; i < arguments.size(); i++) {
    const bool overwritten = i < 64 && (op.write_only >> i & 1);  // an empty one, mostly: nothing of it is read
    each_tensor(arguments[i], [&](const at::Tensor& t) {
      const auto parts = known ? parts_of(t) : std::vector<at::Tensor>();
      known = !parts.empty();
      for (const at::Tensor& part : parts) known = known && (!part.is_cuda() || is_known(part) || (overwritten && is_small(part)));
    });
  }
  torch::jit::Stack real;
  if (known) {
    Unseen unseen;
    try {
      for (const c10::IValue& v : arguments) real.push_back(with_tensors(v, on_cpu, c10::Device(c10::kCPU)));
    } catch (const std::exception&) {
      known = false;
    }
  }
  const torch::jit::Stack written = real;
  handle.redispatchBoxed(rest, stack);
  bool computed = known;
  if (known) {
    try {
      Unseen unseen;
      handle.callBoxed(&real);
    } catch (const std::exception&) {  // the CPU cannot do it: what the device's own operators left stays
      computed = false;
    }
  }
  auto finish = [&](const c10::IValue& device, const c10::IValue* cpu) {
    if (!device.isTensor() || !device.toTensor().defined() || !device.toTensor().is_cuda() || (known && !computed)) return;
    // Where the CPU made as many elements otherwise (a sum that is not coalesced yet), the device's own operators were followed.
    if (!cpu) lower(device.toTensor());
    else if (cpu->isTensor()) write_over(device.toTensor(), cpu->toTensor());
  };
  for (size_t i = 0; i < arguments.size() && i < 64; i++)
    if (op.written >> i & 1) finish(arguments[i], known ? &written[i] : nullptr);
  for (size_t i = first; i < stack->size(); i++)
    if (i - first >= 64 || !(op.view_returns >> (i - first) & 1)) finish((*stack)[i], known ? &real[i - first] : nullptr);
}

}  // namespace gpumem::tracer
