// SPDX-License-Identifier: Apache-2.0
// See unboxed.h.

#include "unboxed.h"

#include "arguments.h"
#include "current.h"
#include "direct.h"
#include "dispatch_key.h"
#include "inputs.h"
#include "lazy_host.h"
#include "sparse.h"
#include "unboxed_names.h"

#include <ATen/Functions.h>
#include <ATen/core/boxing/impl/boxing.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <array>
#include <tuple>

// Declared once more, so that one which this version lacks is a type that is not complete.
namespace at::_ops {
#define GPUMEM_DECLARE(name) struct name;
GPUMEM_UNBOXED(GPUMEM_DECLARE)
#undef GPUMEM_DECLARE
}  // namespace at::_ops

namespace gpumem::tracer {
namespace {

using Looked = c10::ArrayRef<Argument>;

// What to do with a call: hand it on as if it had not been seen, or under its name and finish it afterwards, or leave it to the fallback.
enum class Plan : uint8_t { hand_on, finish, box };

// Every tensor is the host's own and too small to be lazy: nothing is to be done about it (lazy_host.h).
bool is_small_on_host(Looked arguments) {
  bool all = true;
  for (const Argument& v : arguments) {
    all = all && v.is != Argument::Is::hidden;
    each_tensor(v, [&](const at::Tensor& t) { all = all && t.is_cpu() && is_plain(t) && storage_of(t)->nbytes() <= kLazyBytes; });
  }
  return all;
}

// The rare ways of a leaf: copies of arguments, what is small, written and not computed, choices, kernels of PyTorch's.
bool needs_boxes(const Operator& op, const Inputs& in) {
  const bool runs = in.runs(op);
  if (op.has_out || op.choice != Choice::none || (runs && !op.direct)) return true;
  if (!op.writes) return false;
  return runs ? op.nesting.load(std::memory_order_relaxed) != Nesting::alone : in.writes_small;
}

Plan plan_for(const Operator& op, c10::DispatchKeySet keys, Looked arguments, Inputs& in) {
  if (keys.has_any(kNotPlain) || keys.has_any(kSparse) || in_fake_mode()) return Plan::box;
  if (!keys.has_backend(c10::BackendComponent::CUDABit) && keys.has_backend(c10::BackendComponent::CPUBit))
    return is_small_on_host(arguments) ? Plan::hand_on : Plan::box;
  if (op.draws) in.draws = draws(op, arguments[2]);
  bool own = true;  // no tensor belongs to this key's other user
  for (size_t i = 0; i < arguments.size() && own && !in.untouched; i++) {
    own = arguments[i].is != Argument::Is::hidden;
    in.device |= arguments[i].is == Argument::Is::cuda_device;
    each_tensor(arguments[i], [&](const at::Tensor& t) {
      own = own && (kOwnKey || !t.key_set().has(kFollowKey));
      if (!in.untouched) in.add(op, i, t);
    });
  }
  if (!own || in.untouched) return Plan::box;
  if (op.kind == Kind::passes || !in.device) return Plan::finish;
  if (op.kind == Kind::allocates || op.kind == Kind::composite) return Plan::finish;
  if (op.kind == Kind::leaf) return needs_boxes(op, in) ? Plan::box : Plan::finish;
  // Of copies: what is large on the device comes and goes unseen.
  const bool unseen = op.kind == Kind::copies && arguments[0].is_tensor() && arguments[1].is_tensor() && arguments[0].tensor().is_cuda() &&
                      arguments[1].tensor().is_cuda() && !is_small(arguments[0].tensor());
  return unseen ? Plan::finish : Plan::box;
}

// A result of a composite whose work the dispatcher did not see; some hand back an argument's memory.
void mark_unseen(const Operator& op, const at::Tensor& t, Looked arguments) {
  if (!is_plain(t) || !t.is_cuda() || !is_fillable(t) || state_of(t) != State::unknown) return;
  bool shared = false;
  for (const Argument& v : arguments) each_tensor(v, [&](const at::Tensor& a) { shared = shared || (a.has_storage() && storage_of(a) == storage_of(t)); });
  if (!shared) mark_result_not_run(op, t);
}

void mark_computed(const Operator& op, State state, Looked arguments, Looked results) {
  for (size_t i = 0; i < arguments.size() && i < 64; i++)
    if (op.written >> i & 1) each_tensor(arguments[i], [&](const at::Tensor& t) { mark_written(t, state, op.write_only >> i & 1); });
  if (op.view_returns) return;
  for (const Argument& v : results)
    each_tensor(v, [&](const at::Tensor& t) {
      if (t.is_cuda()) set_state(t, state);
    });
}

// After the device's kernel. `on_cpu` runs PyTorch's CPU kernel where the direct loop does not take these tensors.
template <class OnCpu>
void finish(Operator& op, const Inputs& in, bool nested, Looked arguments, Looked results, OnCpu&& on_cpu) {
  const auto each_result = [&](auto&& visit) {
    if (op.view_returns) return;
    for (const Argument& v : results) each_tensor(v, visit);
  };
  if (op.kind == Kind::allocates) return each_result(mark_allocated);
  if (op.kind == Kind::composite) return each_result([&](const at::Tensor& t) { mark_unseen(op, t, arguments); });
  if (op.kind != Kind::leaf) return;
  bool runs = in.runs(op);
  if (runs && nested && op.writes) {  // its device kernel calls others after all: these have been followed
    op.nesting.store(Nesting::nests, std::memory_order_relaxed);
    return;
  }
  each_result([&](const at::Tensor& t) { runs = runs && is_plain(t) && is_small(t); });
  if (runs && (run_directly(*op.direct, arguments, results.empty() ? Argument() : results[0]) || on_cpu())) {
    mark_computed(op, in.state == State::exact ? State::exact : State::plausible, arguments, results);
    operators_run.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  operators_not_run.fetch_add(1, std::memory_order_relaxed);
  if (in.runs(op) && op.writes) mark_computed(op, State::plausible, arguments, {});  // what is changed in place keeps its last healthy value
  each_result([&](const at::Tensor& t) { mark_result_not_run(op, t); });
}

template <class T>
std::array<Argument, 1> looked_at(const T& result) {
  return {argument_of(result)};
}
template <class... T>
std::array<Argument, sizeof...(T)> looked_at(const std::tuple<T...>& results) {
  return std::apply([](const auto&... one) { return std::array<Argument, sizeof...(T)>{argument_of(one)...}; }, results);
}
template <class... T>
void push_result(torch::jit::Stack& stack, const std::tuple<T...>& results) {
  std::apply([&](const auto&... one) { (stack.emplace_back(one), ...); }, results);
}
template <class T>
void push_result(torch::jit::Stack& stack, const T& result) {
  stack.emplace_back(result);
}

}  // namespace

// Outside the unnamed namespace: c10 is told about it below.
template <class Signature>
struct Entry;

template <class R, class... Args>
struct Entry<R(Args...)> final : c10::OperatorKernel {
  using Redispatch = R (*)(c10::DispatchKeySet, Args...);
  c10::OperatorHandle handle;  // by value: what is referred to may not live as long
  Operator* op;
  Redispatch redispatch;  // PyTorch's own, compiled

  Entry(const c10::OperatorHandle& its_handle, Operator* its_op, Redispatch its_redispatch) : handle(its_handle), op(its_op), redispatch(its_redispatch) {}

  R operator()(c10::DispatchKeySet keys, Args... args) const {
    const std::array<Argument, sizeof...(Args)> looked{argument_of(args)...};
    const Looked arguments(looked.data(), looked.size());
    Inputs in;
    const Plan plan = plan_for(*op, keys, arguments, in);
    if (plan == Plan::box) {
      static const auto fallback = c10::BoxedKernel::makeFromFunction<&follow>();
      return c10::impl::BoxedKernelWrapper<R(Args...)>::call(fallback, handle, keys, std::forward<Args>(args)...);
    }
    const c10::DispatchKeySet rest = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kFollowKey);
    followed++;
    if (plan == Plan::hand_on) return redispatch(rest, std::forward<Args>(args)...);
    const CurrentOperator asking(op->kind != Kind::allocates || !current.op ? op->number : 0);
    if (op->kind == Kind::passes || !in.device) return redispatch(rest, std::forward<Args>(args)...);
    if (op->kind != Kind::allocates) worked++;
    const uint64_t before = worked;
    if constexpr (std::is_void_v<R>) {
      redispatch(rest, args...);
      finish(*op, in, worked != before, arguments, {}, [&] { return on_cpu({}, args...); });
    } else {
      R result = redispatch(rest, args...);
      const auto results = looked_at(result);
      finish(*op, in, worked != before, arguments, Looked(results.data(), results.size()), [&] {
        torch::jit::Stack boxed;
        push_result(boxed, result);
        return on_cpu(std::move(boxed), args...);
      });
      return result;
    }
  }

 private:
  bool on_cpu(torch::jit::Stack results, const Bare<Args>&... args) const {
    torch::jit::Stack arguments;
    torch::jit::push(arguments, args...);
    CpuRun cpu(*op, arguments, false);
    return cpu.run(handle, *op) && cpu.deliver(*op, arguments, results.data());
  }
};

}  // namespace gpumem::tracer

// Whoever calls with a stack of IValues gets to the fallback as it is: no second kernel is made of the entry's.
namespace c10::impl {
template <class Signature, bool kAllow>
struct make_boxed_from_unboxed_functor<gpumem::tracer::Entry<Signature>, kAllow> final {
  static void call(OperatorKernel*, const OperatorHandle& handle, DispatchKeySet keys, Stack* stack) { gpumem::tracer::follow(handle, keys, stack); }
};
}  // namespace c10::impl

namespace gpumem::tracer {
namespace {

template <class Op, class = void>
struct Enter {
  static void one() {}
};
template <class Op>
struct Enter<Op, std::void_t<typename Op::schema>> {
  static void one() {
    using Signature = typename Op::schema;
    // Never destroyed: with them the kernels would be.
    static auto* registered = new std::vector<c10::RegistrationHandleRAII>;
    auto& dispatcher = c10::Dispatcher::singleton();
    const auto handle = dispatcher.findSchema({Op::name, Op::overload_name});
    if (!handle || handle->hasKernelForDispatchKey(kFollowKey)) return;
    Operator& op = operator_of(*handle);
    if (op.kind != Kind::leaf && op.kind != Kind::composite && op.kind != Kind::passes && op.kind != Kind::allocates && op.kind != Kind::copies &&
        op.kind != Kind::reads_scalar)
      return;
    try {
      (void)handle->template typed<Signature>();  // throws where its kernels are of another type than the headers say
      auto kernel = std::make_unique<Entry<Signature>>(*handle, &op, &Op::redispatch);
      registered->push_back(dispatcher.registerImpl(handle->operator_name(), kFollowKey,
                                                    c10::KernelFunction::makeFromUnboxedFunctor<false, Entry<Signature>>(std::move(kernel)),
                                                    c10::impl::CppSignature::make<Signature>(), nullptr, "gpumem's tracer"));
    } catch (const std::exception&) {  // the fallback follows it
    }
  }
};

}  // namespace

void enter_unboxed() {
#define GPUMEM_ENTER(name) Enter<at::_ops::name>::one();
  GPUMEM_UNBOXED(GPUMEM_ENTER)
#undef GPUMEM_ENTER
}

}  // namespace gpumem::tracer
