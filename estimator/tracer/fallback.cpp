// SPDX-License-Identifier: Apache-2.0
// The boxed fallback: every operator of a probe's Python passes here once, on every followed thread, and is redispatched to
// its device kernel unchanged; then small operations really run, on the CPU, over the same addresses.

#include "cpu_run.h"
#include "current.h"
#include "direct.h"
#include "dispatch_key.h"
#include "generator_skips.h"
#include "lazy_host.h"
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

// What is not a plain tensor belongs to someone else (fake, functional, batched …) and passes untouched. Sparse ones: sparse.h.
const c10::DispatchKeySet kNotPlain({c10::DispatchKey::Python, c10::DispatchKey::Functionalize, c10::DispatchKey::FuncTorchBatched,
                                     c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::ZeroTensor, c10::DispatchKey::NestedTensor});

bool is_plain(const at::Tensor& t) {
  return !t.key_set().has_any(kNotPlain) && t.layout() == c10::kStrided && t.unsafeGetTensorImpl()->has_storage() && !t.is_meta() &&
         !t.is_quantized() && !t.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
}

std::atomic<uint64_t> operators_run{0}, operators_not_run{0};
thread_local uint64_t followed = 0;  // operators seen on this thread: tells whether a kernel called others
thread_local uint64_t worked = 0;    // of those, on the device and more than an allocation: whether they may have changed values

struct Inputs {
  bool device = false;   // any tensor or device argument is CUDA's
  bool untouched = false;
  bool small = true;     // every tensor that is read or written is small
  bool writes_small = false;
  State state = State::exact;  // the least known of the tensors that are read
  size_t largest_bytes = 0;
};

void lower(State& state, State other) {
  if (other < state) state = other;
}

Inputs look_at(const Operator& op, const Stack& stack, size_t first) {
  Inputs in;
  for (size_t i = first; i < stack.size() && !in.untouched; i++) {
    const c10::IValue& v = stack[i];
    if (v.isDevice()) {
      in.device |= v.toDevice().is_cuda();
      continue;
    }
    size_t position = i - first;
    bool reads = position >= 64 || !(op.write_only >> position & 1);
    bool writes = position < 64 && (op.written >> position & 1);
    each_tensor(v, [&](const at::Tensor& t) {
      if (!is_plain(t)) {
        in.untouched = true;
        return;
      }
      in.device |= t.is_cuda();
      size_t nbytes = storage_of(t)->nbytes();
      if (nbytes > limit_bytes(t)) in.small = false;
      else if (writes) in.writes_small = true;
      if (!in.small) return;
      // Plausible integers and masks are computed with wherever they are followed: counts are made of them.
      if (t.is_floating_point() || t.is_complex()) in.largest_bytes = std::max(in.largest_bytes, std::min(nbytes, t.nbytes()));
      if (!t.is_cuda()) {
        if (writes) in.small = false;  // such mixtures are copy_'s alone
        return;
      }
      if (reads) lower(in.state, state_of(t));
    });
  }
  return in;
}

// What is written in part keeps the rest of its bytes, and so no more than their state.
void mark_written(const at::Tensor& t, State state, bool overwritten) {
  if (!t.is_cuda() || !is_small(t)) return;
  State before = state_of(t);
  if (overwritten && covers_storage(t)) {
    set_state(t, state);
  } else if (before != State::unknown) {
    set_state(t, before == State::blank ? state : std::min(before, state));
  }
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
    each_tensor(stack[i], [&](const at::Tensor& t) {
      if (!t.is_cuda() || !is_plain(t) || !is_fillable(t)) return;
      fill_plausible(t, op.is_all);
      set_state(t, State::plausible);
    });
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
  bool runs = op.runs_on_cpu && in.small &&
              (in.state == State::exact || (in.state != State::unknown && op.choice == Choice::none &&
                                            in.largest_bytes <= (op.compares ? kFillLimitBytes : kPlausibleLimitBytes)));
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
    for (size_t i = first; i < stack->size() && runs; i++)
      each_tensor((*stack)[i], [&](const at::Tensor& t) { runs = runs && is_plain(t) && is_small(t); });
  }
  bool computed = runs && op.direct && !cpu && run_directly(*op.direct, arguments, stack->data() + first);
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

void follow(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, Stack* stack) {
  if (handed_on(handle, keys, stack)) return;
  const c10::DispatchKeySet rest = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kFollowKey);
  Operator& op = operator_of(handle);
  followed++;
  const CurrentOperator asking(op.kind != Kind::allocates || !current.op ? op.number : 0);
  if (op.kind == Kind::passes || keys.has_any(kNotPlain)) return handle.redispatchBoxed(rest, stack);
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
      const at::Tensor& t = stack->back().toTensor();
      if (is_plain(t) && t.is_cuda() && is_fillable(t) && storage_of(t)->nbytes()) {
        std::memset(bytes_of(t), 0, storage_of(t)->nbytes());
        set_state(t, State::blank);
      }
      return;
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
      if (now > nbytes && is_fillable(t)) {
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

}  // namespace

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
