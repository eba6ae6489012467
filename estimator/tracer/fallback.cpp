// SPDX-License-Identifier: Apache-2.0
// The boxed fallback: every operator of a probe's Python passes here once, on every followed thread, and is redispatched to
// its device kernel unchanged; then small operations really run, on the CPU, over the same addresses.

#include "cpu_run.h"
#include "current.h"
#include "direct.h"
#include "dispatch_key.h"
#include "generator_skips.h"
#include "inputs.h"
#include "lazy_host.h"
#include "nested.h"
#include "sparse.h"
#include "storage_states.h"
#include "choices.h"
#include "value_sizes.h"

#include <ATen/Functions.h>
#include <torch/library.h>

#include <cmath>
#include <optional>

namespace gpumem::tracer {
namespace {

using torch::jit::Stack;

Inputs look_at(const Operator& op, const Stack& stack, size_t first) {
  Inputs in;
  if (op.draws) in.draws = draws(op, argument_of(stack[first + 2]));
  for (size_t i = first; i < stack.size() && !in.untouched; i++) {
    const c10::IValue& v = stack[i];
    if (v.isDevice()) {
      in.device |= v.toDevice().is_cuda();
      continue;
    }
    each_tensor(v, [&](const at::Tensor& t) {
      if (!in.untouched) in.add(op, i - first, t);
    });
  }
  return in;
}

// A few operators hand back an argument, or a view of one, without saying so in their schema (_unsafe_view); none does in lists.
bool shares_storage(const c10::IValue& result, c10::ArrayRef<c10::IValue> arguments) {
  if (!result.isTensor()) return false;
  for (const c10::IValue& a : arguments)
    if (a.isTensor() && a.toTensor().defined() && is_plain(a.toTensor()) && storage_of(a.toTensor()) == storage_of(result.toTensor())) return true;
  return false;
}

void mark_not_run(const Operator& op, c10::ArrayRef<c10::IValue> arguments, const Stack& stack, size_t first_return) {
  for (size_t i = 0; i < arguments.size() && i < 64; i++) {
    if (!(op.written >> i & 1)) continue;
    bool overwritten = op.write_only >> i & 1;
    each_tensor(arguments[i], [&](const at::Tensor& t) {
      if (!is_plain(t) || !t.is_cuda() || !is_small(t)) return;
      // What is changed in place keeps its last healthy value.
      if (overwritten && is_fillable(t)) fill_plausible(t, op.is_all);
      mark_written(t, overwritten && !is_fillable(t) ? State::unknown : State::plausible, overwritten);
    });
  }
  for (size_t i = first_return; i < stack.size(); i++) {
    if (i - first_return < 64 && (op.view_returns >> (i - first_return) & 1)) continue;
    each_tensor(stack[i], [&](const at::Tensor& t) { mark_result_not_run(op, t); });
  }
}

// Outputs of what did its work where the dispatcher cannot see it.
void mark_unseen_outputs(const Operator& op, const Stack& stack, size_t first_return, c10::ArrayRef<c10::IValue> arguments, bool kernel) {
  for (size_t i = first_return; i < stack.size(); i++) {
    if (i - first_return < 64 && (op.view_returns >> (i - first_return) & 1)) continue;
    each_tensor(stack[i], [&](const at::Tensor& t) {
      if (!is_plain(t) || !t.is_cuda() || !is_fillable(t)) return;
      State state = state_of(t);
      if (state != State::unknown && !(kernel && state == State::blank)) return;
      if (shares_storage(stack[i], arguments)) return;
      fill_plausible(t, op.is_all);
      set_state(t, State::plausible);
    });
  }
}

void follow_leaf(const c10::OperatorHandle& handle, Operator& op, c10::DispatchKeySet rest, Stack* stack, size_t first, const Inputs& in) {
  bool runs = in.runs(op);
  Arguments arguments;
  if (runs || in.writes_small || op.choice != Choice::none) arguments = arguments_on(*stack, first);
  const Nesting nesting = op.nesting.load(std::memory_order_relaxed);
  const bool copies = op.writes && (op.has_out || nesting != Nesting::alone);
  std::optional<CpuRun> cpu;
  if (runs && copies) cpu.emplace(op, arguments, true);
  const uint64_t before = worked;
  handle.redispatchBoxed(rest, stack);
  const bool nested = worked != before;
  if (runs && op.writes && !op.has_out && nesting != Nesting::nests && (nested || nesting == Nesting::unknown))
    op.nesting.store(nested ? Nesting::nests : Nesting::alone, std::memory_order_relaxed);
  if (runs && nested && op.writes && !copies) return;
  if (runs) {
    bool nests = false;  // makes a nested tensor of plain ones
    for (size_t i = first; i < stack->size() && runs; i++)
      each_tensor((*stack)[i], [&](const at::Tensor& t) {
        runs = runs && is_plain(t) && is_small(t);
        nests = nests || is_nested(t);
      });
    if (nests && in.state == State::exact && !op.writes) {
      CpuRun run(op, arguments, false);
      if (run.run(handle, op) && run.result(0).isTensor() && (*stack)[first].isTensor()) write_nested((*stack)[first].toTensor(), run.result(0).toTensor());
    }
  }
  bool computed = false;
  if (runs && op.direct && !cpu) {
    c10::SmallVector<Argument, 8> plain;
    for (const c10::IValue& v : arguments) plain.push_back(argument_of(v));
    computed = run_directly(*op.direct, plain, stack->size() > first ? argument_of((*stack)[first]) : Argument());
  }
  if (runs && !computed) {
    if (!cpu) cpu.emplace(op, arguments, false);
    computed = cpu->run(handle, op) && cpu->deliver(op, arguments, stack->data() + first);
  }
  if (computed) {
    State state = in.state == State::exact ? State::exact : State::plausible;
    for (size_t i = 0; i < arguments.size() && i < 64; i++)
      if (op.written >> i & 1) each_tensor(arguments[i], [&](const at::Tensor& t) { mark_written(t, state, op.write_only >> i & 1); });
    for (size_t i = first; i < stack->size(); i++) {
      if (i - first < 64 && (op.view_returns >> (i - first) & 1)) continue;
      each_tensor((*stack)[i], [&](const at::Tensor& t) {
        if (t.is_cuda()) set_state(t, state);
      });
    }
    operators_run.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  operators_not_run.fetch_add(1, std::memory_order_relaxed);
  mark_not_run(op, arguments, *stack, first);
  if (op.choice != Choice::none) spread_choice(op, arguments, stack->data() + first);
}

void follow_copy(const c10::OperatorHandle& handle, c10::DispatchKeySet rest, Stack* stack, size_t first) {
  const at::Tensor to = (*stack)[first].toTensor(), from = (*stack)[first + 1].toTensor();
  State state = State::unknown;
  at::Tensor source = from;
  if (from.is_cuda()) {
    state = state_of(from);
    if (state != State::unknown) source = alias_on_cpu(from);
  } else if (from.nbytes() <= limit_bytes(from)) {
    state = compute_lazy(from) ? State::exact : State::unknown;
  }
  // Small contents travel whatever their route on the device: pinned, converted, transposed.
  bool known = state != State::unknown && (!to.is_cuda() || is_small(to));
  if (known && from.is_cuda() && to.is_cuda() && storage_of(from) == storage_of(to)) known = false;
  handle.redispatchBoxed(rest, stack);
  if (!to.is_cuda()) copied_to_host(to, known);
  if (known && copy_on_host(to.is_cuda() ? alias_on_cpu(to) : to, source)) {
    mark_written(to, state == State::blank ? State::plausible : state, true);
  } else if (to.is_cuda() && is_small(to)) {
    if (is_fillable(to)) fill_plausible(to);
    mark_written(to, is_fillable(to) ? State::plausible : State::unknown, true);
  }
}

void follow_scalar(const c10::OperatorHandle& handle, Operator& op, c10::DispatchKeySet rest, Stack* stack, size_t first) {
  const at::Tensor self = (*stack)[first].toTensor();
  State state = state_of(self);
  Stack real;
  if (state != State::unknown) {
    try {
      real.emplace_back(alias_on_cpu(self));
      Unseen unseen;
      handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &real);
    } catch (const std::exception&) {  // a type that the host cannot read
      state = State::unknown;
    }
  }
  handle.redispatchBoxed(rest, stack);
  c10::IValue& answer = stack->back();
  if (state == State::exact) {
    answer = real.back();
    return;
  }
  count_guess(op, Guess::scalar);
  c10::Scalar value = state == State::unknown ? c10::Scalar(0) : real.back().toScalar();
  if (self.is_floating_point()) {
    double number = value.toDouble();
    answer = c10::Scalar(std::isfinite(number) && number != 0 ? number : 1.0);
  } else if (self.is_complex()) {
    answer = c10::Scalar(c10::complex<double>(1.0, 0.0));
  } else if (self.scalar_type() == c10::ScalarType::Bool) {
    answer = c10::Scalar(value.toBool());
  } else {
    answer = c10::Scalar(value.toLong());
  }
}

// nms: where the boxes are known, those that its CPU kernel keeps; else all of them, in their order (its device kernel leaves
// flags behind that nobody has written, and some versions then keep none).
void follow_boxes(const c10::OperatorHandle& handle, Operator& op, c10::DispatchKeySet rest, Stack* stack, size_t first, const Inputs& in) {
  if (op.runs_on_cpu && in.small && in.state == State::exact) {
    CpuRun cpu(op, c10::ArrayRef<c10::IValue>(stack->data() + first, stack->size() - first), false);
    const at::Tensor boxes = (*stack)[first].toTensor();
    if (cpu.run(handle, op)) {
      const at::Tensor kept = cpu.result(0).toTensor();
      at::Tensor out = at::empty(kept.sizes(), boxes.options().dtype(c10::kLong));
      if (write_device(out, kept)) set_state(out, State::exact);
      stack->erase(stack->begin() + first, stack->end());
      stack->emplace_back(std::move(out));
      return;
    }
  }
  const int64_t boxes = (*stack)[first].toTensor().size(0);
  handle.redispatchBoxed(rest, stack);
  at::Tensor all = at::empty({boxes}, stack->back().toTensor().options());
  if (is_small(all)) {
    auto* data = reinterpret_cast<int64_t*>(bytes_of(all));
    for (int64_t i = 0; i < boxes; i++) data[i] = i;
    set_state(all, State::exact);
  }
  stack->back() = std::move(all);
  count_guess(op, Guess::size);
}

void follow_size(const c10::OperatorHandle& handle, Operator& op, Stack* stack, size_t first, const Inputs& in) {
  if (op.runs_on_cpu && in.small && (in.state == State::exact || in.state == State::blank)) {
    CpuRun cpu(op, c10::ArrayRef<c10::IValue>(stack->data() + first, stack->size() - first), false);
    if (cpu.run(handle, op)) {
      Stack results;
      for (size_t i = 0; i < op.returns; i++) results.push_back(cpu.result(i));
      return answer_size(op, *stack, first, &results);
    }
  }
  answer_size(op, *stack, first, nullptr);
}

bool has_device_argument(const Stack& stack, size_t first) {
  for (size_t i = first; i < stack.size(); i++)
    if (stack[i].isDevice() && stack[i].toDevice().is_cuda()) return true;
  return false;
}

// No tensor is on the device: what the program computes on the CPU is real, or lazy.
void follow_on_host(const c10::OperatorHandle& handle, Operator& op, c10::DispatchKeySet rest, Stack* stack, size_t first) {
  bool plain = true;
  for (size_t i = first; i < stack->size() && plain; i++) each_tensor((*stack)[i], [&](const at::Tensor& t) { plain = plain && is_plain(t); });
  if (plain && answer_lazily(handle, op, *stack, first)) return;
  if (op.generator >= 0) {
    const c10::IValue& generator = (*stack)[first + op.generator];
    settle_generator(generator.isGenerator() ? generator.toGenerator() : at::Generator());
  }
  handle.redispatchBoxed(rest, stack);
}

}  // namespace

void follow(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, Stack* stack) {
  if (handed_on(handle, keys, stack)) return;
  const c10::DispatchKeySet rest = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kFollowKey);
  Operator& op = operator_of(handle);
  followed++;
  const CurrentOperator asking(op.kind != Kind::allocates || !current.op ? op.number : 0);
  if (op.kind == Kind::passes) return handle.redispatchBoxed(rest, stack);
  if (keys.has_any(kNotPlain)) {
    if (!keys.has(c10::DispatchKey::NestedTensor) || keys.has_any(kNotPlain.remove(c10::DispatchKey::NestedTensor)))
      return handle.redispatchBoxed(rest, stack);
    return follow_nested(handle, op, rest, stack, stack->size() - handle.schema().arguments().size());
  }
  const size_t first = stack->size() - handle.schema().arguments().size();
  const bool on_device = keys.has_backend(c10::BackendComponent::CUDABit);
  if (!on_device && (keys.has_backend(c10::BackendComponent::CPUBit) || (op.generator >= 0 && !has_device_argument(*stack, first)))) {
    return follow_on_host(handle, op, rest, stack, first);
  }
  if (keys.has_any(kSparse)) return follow_sparse(handle, op, rest, stack, first);
  const Inputs in = look_at(op, *stack, first);
  if (in.untouched || !in.device) return handle.redispatchBoxed(rest, stack);
  if (op.kind != Kind::allocates) worked++;

  switch (op.kind) {
    case Kind::leaf:
    case Kind::fills_randomly: return follow_leaf(handle, op, rest, stack, first, in);
    case Kind::copies: return follow_copy(handle, rest, stack, first);
    case Kind::reads_scalar: return follow_scalar(handle, op, rest, stack, first);
    case Kind::picks_boxes: return follow_boxes(handle, op, rest, stack, first, in);
    case Kind::sizes_by_value: return follow_size(handle, op, stack, first, in);
    case Kind::allocates: {
      handle.redispatchBoxed(rest, stack);
      return mark_allocated(stack->back().toTensor());
    }
    case Kind::fresh: {
      const at::Tensor t = (*stack)[first].toTensor();
      if (state_of(t) == State::unknown && storage_of(t)->nbytes() <= kFloatLimitBytes) set_state(t, State::exact);
      return handle.redispatchBoxed(rest, stack);
    }
    case Kind::resizes: {
      const at::Tensor t = (*stack)[first].toTensor();
      State before = state_of(t);
      size_t nbytes = storage_of(t)->nbytes();
      handle.redispatchBoxed(rest, stack);
      size_t now = storage_of(t)->nbytes();
      if (now > nbytes && is_fillable_storage(t)) {
        std::memset(bytes_of(t) + nbytes, 0, now - nbytes);
        set_state(t, nbytes == 0 ? State::blank : std::min(before, State::plausible));
      }
      return;
    }
    case Kind::assumes_finite: {
      if (in.small && in.state == State::exact) return follow_leaf(handle, op, rest, stack, first, in);
      count_guess(op, Guess::finite);
      handle.redispatchBoxed(rest, stack);
      return;
    }
    case Kind::collective: {
      const Arguments arguments = arguments_on(*stack, first);
      handle.redispatchBoxed(rest, stack);
      for (const c10::IValue& v : arguments)
        each_tensor(v, [&](const at::Tensor& t) {
          if (t.is_cuda() && is_small(t)) set_state(t, State::plausible);
        });
      return;
    }
    case Kind::foreign: {
      const Arguments arguments = arguments_on(*stack, first);
      uint64_t before = followed;
      handle.redispatchBoxed(rest, stack);
      bool kernel = followed == before;
      if (kernel)
        for (size_t i = 0; i < arguments.size() && i < 64; i++)
          if (op.written >> i & 1)
            each_tensor(arguments[i], [&](const at::Tensor& t) { mark_written(t, State::plausible, false); });
      return mark_unseen_outputs(op, *stack, first, arguments, true);
    }
    default: {
      const Arguments arguments = arguments_on(*stack, first);
      handle.redispatchBoxed(rest, stack);
      return mark_unseen_outputs(op, *stack, first, arguments, false);
    }
  }
}

TORCH_LIBRARY_IMPL(_, GPUMEM_FOLLOW_KEY, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&follow>()); }

void let_views_through() {
  if (!kOwnKey) return;
  static auto* library = new torch::Library(torch::Library::IMPL, "aten", kFollowKey, __FILE__, __LINE__);
  for (const c10::OperatorName& name : names_to_let_through()) {
    const std::string full = name.name + (name.overload_name.empty() ? "" : "." + name.overload_name);
    library->impl(full.c_str(), torch::CppFunction::makeFallthrough());
  }
}

uint64_t count_run() { return operators_run.load(); }
uint64_t count_not_run() { return operators_not_run.load(); }

}  // namespace gpumem::tracer
