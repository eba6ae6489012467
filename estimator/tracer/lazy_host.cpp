// SPDX-License-Identifier: Apache-2.0
// Which operations keep tensors lazy, and how their results look. See lazy_host.h; recipes are in lazy_recipes.cpp.

#include "lazy_host.h"

#include "cpu_run.h"
#include "generator_skips.h"
#include "host_memory.h"
#include "lazy_recipes.h"
#include "storage_states.h"

#include <ATen/EmptyTensor.h>

#include <algorithm>

namespace gpumem::tracer {
namespace {

bool is_host_float(const at::Tensor& t) {
  return t.is_cpu() && t.layout() == c10::kStrided && t.has_storage() && t.is_floating_point() && storage_of(t)->data() != nullptr;
}
bool is_large(const at::Tensor& t) { return t.numel() * t.itemsize() > kLazyBytes; }
bool whole(const at::Tensor& t) { return t.is_contiguous() && covers_storage(t); }

struct Tensors {
  std::vector<at::Tensor> lazy;     // read and lazy
  std::vector<at::Tensor> written;
  bool all_written_large = true, any_written_lazy = false, all_lazy_views_small = true;
};

Tensors sort_out(const Operator& op, const torch::jit::Stack& stack, size_t first) {
  Tensors found;
  for (size_t i = first; i < stack.size(); i++) {
    size_t position = i - first;
    bool writes = position < 64 && (op.written >> position & 1), reads = position >= 64 || !(op.write_only >> position & 1);
    each_tensor(stack[i], [&](const at::Tensor& t) {
      bool lazy = is_host_float(t) && is_lazy(t);
      if (writes) {
        found.written.push_back(t);
        found.any_written_lazy |= lazy;
        if (!is_host_float(t) || !is_large(t)) found.all_written_large = false;
      }
      if (reads && lazy) {
        found.lazy.push_back(t);
        if (is_large(t)) found.all_lazy_views_small = false;
      }
    });
  }
  return found;
}

// What an in-place or out= operator returns: the arguments that it has written.
void return_written(const Operator& op, torch::jit::Stack& stack, size_t first, const std::vector<at::Tensor>& written) {
  stack.erase(stack.begin() + first, stack.end());
  for (size_t i = 0; i < op.returns; i++) stack.emplace_back(written[i]);
}

// What is overwritten by something lazy.
void lose(const at::Tensor& t) {
  if (whole(t)) make_zero(t);
  set_recipe(t, covers_storage(t) ? lost_recipe() : kept_recipe());
}

// A lazy tensor is about to be written, by what is real: all of it, or a part.
void before_real_write(const at::Tensor& t, bool overwritten) {
  if (overwritten && covers_storage(t)) return set_recipe(t, nullptr);
  constexpr size_t kWorthComputing = 64 << 20;  // a row of zeros in an embedding of billions is not
  if (storage_of(t)->nbytes() > kWorthComputing || !compute_lazy(t)) set_recipe(t, kept_recipe());
}

// A recipe for the operator's result where its first argument has one and all others are numbers.
RecipePointer extended(const c10::OperatorHandle& handle, const torch::jit::Stack& stack, size_t first, const at::Tensor& result) {
  if (!handle.hasTag(at::Tag::pointwise) || !stack[first].isTensor() || !stack[first].toTensor().defined()) return nullptr;
  const at::Tensor& self = stack[first].toTensor();
  RecipePointer before = recipe_of(self);
  if (!before || before->lost || !whole(self) || !whole(result) || self.sizes() != result.sizes()) return nullptr;
  torch::jit::Stack arguments(stack.begin() + first, stack.end());
  arguments[0] = c10::IValue();
  for (c10::IValue& a : arguments) {
    bool other = a.isList();
    each_tensor(a, [&](const at::Tensor& t) { other = other || !t.is_cpu() || t.numel() != 1 || is_lazy(t); });
    if (other) return nullptr;
  }
  return then(before, handle, std::move(arguments), result.scalar_type());
}

bool skip_fill(const Operator& op, torch::jit::Stack& stack, size_t first) {
  const at::Tensor t = stack[first].toTensor();
  bool normal = op.name == "aten::normal_";
  if (!(normal || op.name == "aten::uniform_") || !is_host_float(t) || !is_large(t) || !t.is_contiguous()) return false;
  const c10::IValue& generator = stack[first + op.generator];
  at::Generator drawn = generator.isNone() ? at::Generator() : generator.toGenerator();
  if (drawn.defined() && drawn.device().type() != c10::kCPU) return false;
  SkippedState before = skip_numbers(drawn, numbers_drawn(normal, t.scalar_type(), t.numel()));
  make_zero(t);
  if (covers_storage(t)) {
    torch::jit::Stack arguments(stack.begin() + first, stack.end());
    arguments[0] = c10::IValue();
    set_recipe(t, random_recipe(op, std::move(arguments), before, t.scalar_type()));
  } else {
    set_recipe(t, kept_recipe());
  }
  stack.erase(stack.begin() + first, stack.end());
  stack.emplace_back(t);
  return true;
}

bool skip_zero(const Operator& op, torch::jit::Stack& stack, size_t first) {
  const at::Tensor t = stack[first].toTensor();
  if (op.name != "aten::zero_") {
    const c10::IValue& value = stack[first + 1];
    if (op.name != "aten::fill_.Scalar" || !value.isScalar() || value.toScalar().isComplex() || value.toScalar().toDouble() != 0) return false;
  }
  if (!t.is_cpu() || t.layout() != c10::kStrided || !t.has_storage() || !is_large(t) || !t.is_contiguous()) return false;
  if (is_lazy(t)) before_real_write(t, true);
  if (!make_zero(t)) return false;
  stack.erase(stack.begin() + first, stack.end());
  stack.emplace_back(t);
  return true;
}

bool skip_copy(torch::jit::Stack& stack, size_t first) {
  const at::Tensor to = stack[first].toTensor(), from = stack[first + 1].toTensor();
  if (!from.defined() || !from.is_cpu() || !is_host_float(to)) return false;
  if (!is_host_float(from) || !is_large(to) || !is_large(from)) {
    if (is_host_float(from) && is_lazy(from)) compute_lazy(from);
    if (is_lazy(to)) before_real_write(to, true);
    return false;
  }
  RecipePointer source = recipe_of(from);
  if (!source && is_file_mapped(storage_of(from)->data_ptr(), from.const_data_ptr())) source = mapped_recipe(from);
  if (!source) {
    if (is_lazy(to)) before_real_write(to, true);
    return false;
  }
  bool same = from.is_contiguous() && (source->mapped() || covers_storage(from)) && whole(to) && from.sizes() == to.sizes();
  if (whole(to)) make_zero(to);
  set_recipe(to, same && !source->lost ? cast(source, to.scalar_type()) : covers_storage(to) ? lost_recipe() : kept_recipe());
  stack.erase(stack.begin() + first, stack.end());
  stack.emplace_back(to);
  return true;
}

at::Tensor on_meta(const at::Tensor& t) {
  // Some Meta kernels are Python functions, which take a number for a tensor on the CPU only.
  if (t.unsafeGetTensorImpl()->is_wrapped_number()) return t;
  return at::Tensor(at::detail::empty_strided_meta(t.sizes(), t.strides(), t.scalar_type()));
}

// The operator's results as Meta tensors; empty where it has no Meta kernel or that refuses.
std::optional<torch::jit::Stack> shapes_of_results(const c10::OperatorHandle& handle, const torch::jit::Stack& stack, size_t first) {
  if (!handle.hasComputedKernelForDispatchKey(c10::DispatchKey::Meta)) return std::nullopt;
  torch::jit::Stack meta;
  for (size_t i = first; i < stack.size(); i++) meta.push_back(with_tensors(stack[i], on_meta, c10::Device(c10::kMeta)));
  try {
    Unseen unseen;
    handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &meta);
  } catch (const std::exception&) {
    return std::nullopt;
  }
  return meta;
}

// Answers without running: large floating-point results are lazy, small ones plausible if `guess`, else nothing is answered.
bool answer_by_shape(const c10::OperatorHandle& handle, Operator& op, torch::jit::Stack& stack, size_t first, bool guess) {
  auto shapes = shapes_of_results(handle, stack, first);
  if (!shapes || shapes->size() != op.returns) return false;
  bool all_large = true;
  for (const c10::IValue& v : *shapes) {
    if (!v.isTensor() && !v.isList()) return false;
    each_tensor(v, [&](const at::Tensor& t) { all_large = all_large && t.is_floating_point() && is_large(t); });
  }
  if (!all_large && !guess) return false;
  torch::jit::Stack results;
  for (const c10::IValue& v : *shapes) {
    results.push_back(with_tensors(v, [&](const at::Tensor& meta) {
      at::Tensor t(at::detail::empty_strided_cpu(meta.sizes(), meta.strides(), meta.scalar_type()));
      if (t.is_floating_point() && is_large(t)) {
        make_zero(t);
        RecipePointer recipe = op.returns == 1 ? extended(handle, stack, first, t) : nullptr;
        set_recipe(t, recipe ? recipe : lost_recipe());
      } else {
        fill_plausible(t, op.is_all);
      }
      return t;
    }, std::nullopt));
  }
  if (!all_large) count_guess(op, Guess::host);
  stack.erase(stack.begin() + first, stack.end());
  for (c10::IValue& v : results) stack.push_back(std::move(v));
  return true;
}

bool answer_written(const c10::OperatorHandle& handle, const Operator& op, torch::jit::Stack& stack, size_t first, const Tensors& found) {
  if (!found.all_written_large || (op.returns != 0 && op.returns != found.written.size())) return false;
  for (const at::Tensor& t : found.written) {
    RecipePointer recipe = found.written.size() == 1 && t.is_same(stack[first].isTensor() ? stack[first].toTensor() : at::Tensor())
                               ? extended(handle, stack, first, t)
                               : nullptr;
    if (recipe) set_recipe(t, recipe);
    else lose(t);
  }
  return_written(op, stack, first, found.written);
  return true;
}

}  // namespace

bool answer_lazily(const c10::OperatorHandle& handle, Operator& op, torch::jit::Stack& stack, size_t first) {
  if (op.kind == Kind::passes || op.kind == Kind::composite || op.kind == Kind::foreign || op.kind == Kind::collective) return false;
  bool has_self = stack.size() > first && stack[first].isTensor() && stack[first].toTensor().defined();
  if (has_self) {
    if (op.kind == Kind::fills_randomly && skip_fill(op, stack, first)) return true;
    if (op.is_zero && skip_zero(op, stack, first)) return true;
    if (op.kind == Kind::copies) return skip_copy(stack, first);
  }
  if (!any_recipes()) return false;
  Tensors found = sort_out(op, stack, first);
  if (found.lazy.empty()) {
    for (const at::Tensor& t : found.written)
      if (is_host_float(t) && is_lazy(t)) before_real_write(t, op.write_only != 0);
    return false;
  }
  if (!op.runs_on_cpu) return false;
  if (!found.written.empty()) {
    if (answer_written(handle, op, stack, first, found)) return true;
  } else if (!found.all_lazy_views_small && answer_by_shape(handle, op, stack, first, false)) {
    return true;
  }
  bool computed = true;
  for (const at::Tensor& t : found.lazy) computed = compute_lazy(t) && computed;
  for (const at::Tensor& t : found.written)
    if (is_host_float(t) && is_lazy(t)) set_recipe(t, kept_recipe());
  if (computed || found.all_lazy_views_small || !found.written.empty()) return false;
  if (op.kind == Kind::reads_scalar || op.kind == Kind::sizes_by_value) return false;
  return answer_by_shape(handle, op, stack, first, true);
}

void copied_to_host(const at::Tensor& to, bool known) {
  if (!is_host_float(to) || !is_large(to)) return;
  // Bytes that the program had put there, and now fetches, are real: nothing else makes a device's large memory differ from zero.
  if (known || !reads_as_zero(to)) {
    if (is_lazy(to)) before_real_write(to, true);
  } else {
    set_recipe(to, covers_storage(to) ? lost_recipe() : kept_recipe());
  }
}

}  // namespace gpumem::tracer
