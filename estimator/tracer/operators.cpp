// SPDX-License-Identifier: Apache-2.0
// Classification of operators by their schema and the kernels that PyTorch registers for them.

#include "operators.h"

#include "direct.h"

#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace gpumem::tracer {
namespace {

using Names = std::unordered_set<std::string_view>;

const Names kAllocates = {"empty", "empty_strided"};
const Names kRandomFills = {"normal_", "uniform_", "random_", "bernoulli_", "exponential_", "log_normal_", "cauchy_", "geometric_"};
// Writes in the schema that change no element.
const Names kPasses = {"record_stream", "requires_grad_", "set_", "detach_", "_pin_memory", "is_pinned", "_assert_async", "_assert_tensor_metadata"};
// Composites all of whose work other operators do.
const Names kGlue = {"clone", "_to_copy", "convolution", "_convolution", "ones_like", "zeros_like", "full_like", "full", "ones", "zeros", "new_zeros",
                     "new_ones", "new_full", "scalar_tensor"};
// Kernels that call one other operator, which does all.
const Names kDelegates = {"relu", "relu_"};
// Composites like kGlue, and nobody asks which operator it was that allocated: the name of what called it says more.
const Names kUnseenGlue = {"result_type", "empty_like", "new_empty", "can_cast", "is_nonzero", "item"};
// What programs call most of what passes: letting all 600 through would take 30 ms at every start.
const std::pair<const char*, const char*> kFrequentViews[] = {
    {"alias", ""}, {"as_strided", ""}, {"chunk", ""}, {"contiguous", ""}, {"detach", ""}, {"detach_", ""}, {"diagonal", ""}, {"empty_like", ""},
    {"expand", ""}, {"expand_as", ""}, {"flatten", "using_ints"}, {"is_nonzero", ""}, {"item", ""}, {"mT", ""}, {"movedim", "int"}, {"narrow", ""},
    {"new_empty", ""}, {"numpy_T", ""}, {"permute", ""}, {"record_stream", ""}, {"requires_grad_", ""}, {"reshape", ""}, {"result_type", "Scalar"},
    {"result_type", "Scalar_Scalar"}, {"result_type", "Scalar_Tensor"}, {"result_type", "Tensor"}, {"select", "int"}, {"size", "int"},
    {"slice", "Tensor"}, {"split", "Tensor"}, {"split", "sizes"}, {"split_with_sizes", ""}, {"squeeze", ""}, {"squeeze", "dim"}, {"squeeze", "dims"},
    {"stride", "int"}, {"t", ""}, {"to", "device"}, {"to", "dtype"}, {"to", "dtype_layout"}, {"to", "other"}, {"transpose", "int"}, {"unbind", "int"},
    {"unfold", ""}, {"unsqueeze", ""}, {"view", ""}, {"view", "dtype"}, {"view_as", ""}, {"_reshape_alias", ""}};
const Names kSizesByValue = {"nonzero", "_unique", "_unique2", "unique_dim", "unique_consecutive", "unique_dim_consecutive"};
const Names kComparisons = {"gt", "ge", "lt", "le", "eq", "ne", "isnan", "isinf", "isfinite"};
const Names kOverwrites = {"fill_", "zero_", "copy_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_",
                           "log_normal_", "cauchy_", "geometric_"};
// Random and without a generator argument: running them would advance the program's own CPU generator.
const Names kDraws = {"native_dropout", "rrelu_with_noise"};

bool is_generator(const c10::TypePtr& type) {
  if (type->kind() == c10::TypeKind::GeneratorType) return true;
  auto optional = type->cast<c10::OptionalType>();
  return optional && optional->getElementType()->kind() == c10::TypeKind::GeneratorType;
}

bool has_tensor(const c10::TypePtr& type) {
  if (type->kind() == c10::TypeKind::TensorType) return true;
  for (const auto& contained : type->containedTypes())
    if (has_tensor(contained)) return true;
  return false;
}

Kind kind_of(const c10::OperatorHandle& handle, std::string_view space, std::string_view base, Operator& op) {
  const auto& schema = handle.schema();
  if (space == "c10d" || space == "_c10d_functional") return Kind::collective;
  // torchvision's operators have CPU kernels of their own and no effects beside their results.
  if (space == "torchvision" && handle.hasKernelForDispatchKey(c10::DispatchKey::CUDA)) return base == "nms" ? Kind::picks_boxes : Kind::leaf;
  if (space != "aten") return Kind::foreign;
  if (base == "_coalesce") return Kind::coalesces;
  if (base == "resize_") return Kind::resizes;
  if ((kGlue.count(base) || kUnseenGlue.count(base)) && !handle.hasKernelForDispatchKey(c10::DispatchKey::CUDA) && !op.writes) return Kind::passes;
  if (kDelegates.count(base) && schema.overload_name().empty()) return Kind::passes;
  if (kPasses.count(base) || handle.hasTag(at::Tag::inplace_view)) return Kind::passes;
  if (base == "copy_") return Kind::copies;
  if (base == "_local_scalar_dense") return Kind::reads_scalar;
  if (base == "lift_fresh") return Kind::fresh;
  if (kAllocates.count(base) && schema.overload_name().find("out") == std::string::npos) return Kind::allocates;
  if (base == "_amp_foreach_non_finite_check_and_unscale_") return Kind::assumes_finite;
  if (kSizesByValue.count(base) && schema.overload_name().find("out") == std::string::npos) return Kind::sizes_by_value;
  if (kRandomFills.count(base)) return Kind::fills_randomly;
  bool only_views = op.returns > 0 && !op.writes;
  for (size_t i = 0; i < op.returns; i++)
    if (!(op.view_returns >> i & 1)) only_views = false;
  if (only_views) return Kind::passes;
  return handle.hasKernelForDispatchKey(c10::DispatchKey::CUDA) ? Kind::leaf : Kind::composite;
}

void describe(const c10::OperatorHandle& handle, Operator& op) {
  const auto& schema = handle.schema();
  op.schema = &schema;
  op.name = schema.name();
  if (!schema.overload_name().empty()) op.name += "." + schema.overload_name();
  op.arguments = schema.arguments().size();
  op.returns = schema.returns().size();
  size_t colons = schema.name().find("::");
  std::string_view name = schema.name();
  std::string_view space = name.substr(0, colons), base = name.substr(colons + 2);
  const auto& arguments = schema.arguments();
  for (size_t i = 0; i < arguments.size() && i < 64; i++) {
    if (arguments[i].alias_info() && arguments[i].alias_info()->isWrite()) {
      op.writes = true;
      op.has_out = op.has_out || arguments[i].is_out();
      op.written |= uint64_t{1} << i;
      if (arguments[i].is_out() || (i == 0 && kOverwrites.count(base))) op.write_only |= uint64_t{1} << i;
    }
    if (is_generator(arguments[i].type())) op.generator = static_cast<int>(i);
  }
  const auto& returns = schema.returns();
  for (size_t i = 0; i < returns.size() && i < 64; i++)
    if (returns[i].alias_info() && has_tensor(returns[i].type())) op.view_returns |= uint64_t{1} << i;
  for (const auto& value : returns) op.returns_tensor = op.returns_tensor || has_tensor(value.type());
  op.kind = kind_of(handle, space, base, op);
  op.draws = kDraws.count(base) != 0;
  op.is_zero = base == "zero_" || base == "fill_";
  op.is_all = base == "all";
  op.is_softmax = base == "_sparse_softmax" || base == "_sparse_log_softmax";
  op.is_softmax_backward = base == "_sparse_softmax_backward_data" || base == "_sparse_log_softmax_backward_data";
  op.compares = kComparisons.count(base) != 0;
  if (space == "aten" && schema.overload_name().find("out") == std::string::npos && schema.overload_name().find("values") == std::string::npos) {
    const bool draws = base == "multinomial";
    op.choice_k = base == "topk" || base == "sort" || draws;
    if (base == "argmax" || base == "argmin" || draws) op.choice = Choice::first;
    else if (op.choice_k || ((base == "max" || base == "min") && schema.overload_name() == "dim")) op.choice = Choice::second;
    op.choice_dim = draws ? -1 : schema.argumentIndexWithName("dim").value_or(0);
  }
  op.runs_on_cpu = (space == "aten" || space == "torchvision") && handle.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
  if (op.runs_on_cpu) op.direct = direct_of(schema);
}

using Registry = std::unordered_map<const void*, Operator*>;
Registry& registry() {
  static auto* operators = new Registry;
  return *operators;
}

std::vector<const Operator*>& numbered() {
  static auto* operators = new std::vector<const Operator*>;
  return *operators;
}

const char* kGuessNames[kGuesses] = {"scalar", "size", "finite", "host"};
std::atomic<uint64_t> lost{0};

}  // namespace

std::mutex& operators_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

Operator& operator_of(const c10::OperatorHandle& handle) {
  constexpr size_t kSlots = 1024;
  static thread_local Operator* recent[kSlots];
  const void* schema = &handle.schema();
  Operator*& slot = recent[(reinterpret_cast<uintptr_t>(schema) >> 6) % kSlots];
  if (slot && slot->schema == schema) return *slot;
  std::lock_guard<std::mutex> hold(operators_mutex());
  Operator*& known = registry()[schema];
  if (!known) {
    known = new Operator;
    describe(handle, *known);
    if (numbered().size() < 65535) {
      numbered().push_back(known);
      known->number = static_cast<uint16_t>(numbered().size());
    }
  }
  slot = known;
  return *known;
}

std::vector<c10::OperatorName> names_to_let_through() {
  std::vector<c10::OperatorName> names;
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& [base, overload] : kFrequentViews) {
    const auto handle = dispatcher.findSchema({"aten::" + std::string(base), overload});
    if (handle && operator_of(*handle).kind == Kind::passes) names.push_back(handle->operator_name());
  }
  return names;
}

std::string operator_name(uint16_t number) {
  std::lock_guard<std::mutex> hold(operators_mutex());
  return number && number <= numbered().size() ? numbered()[number - 1]->name : "";
}

void count_guess(Operator& op, Guess guess) { op.guesses[static_cast<size_t>(guess)].fetch_add(1, std::memory_order_relaxed); }

void count_lost() { lost.fetch_add(1, std::memory_order_relaxed); }

std::string guesses_as_json() {
  std::string text;
  if (uint64_t count = lost.load()) text = "{\"op\":\"random values\",\"kind\":\"host\",\"count\":" + std::to_string(count) + "}";
  std::lock_guard<std::mutex> hold(operators_mutex());
  for (const auto& [schema, op] : registry())
    for (size_t i = 0; i < kGuesses; i++)
      if (uint64_t count = op->guesses[i].load())
        text += std::string(text.empty() ? "" : ",") + "{\"op\":\"" + op->name + "\",\"kind\":\"" + kGuessNames[i] + "\",\"count\":" + std::to_string(count) + "}";
  return "[" + text + "]";
}

}  // namespace gpumem::tracer
