// SPDX-License-Identifier: Apache-2.0
// See direct.h: which operators there are, and how their arguments become rows of numbers. The loops: direct_loops.h.

#include "direct.h"

#include "direct_loops.h"
#include "storage_states.h"

#include <c10/util/SmallVector.h>

#include <limits>
#include <optional>
#include <string_view>
#include <unordered_map>

namespace gpumem::tracer {
namespace {

enum class Form : uint8_t { elements, flags, fills, reduces, multiplies };

}  // namespace

struct Direct {
  Form form = Form::elements;
  uint8_t operands = 1;      // the first arguments, tensors or numbers; the next, where it is a number, is the factor
  Loop loop = nullptr;
  bool in_place = false, each = false, is_power = false, is_mean = false, is_norm = false, adds = false;
};

namespace {

const std::unordered_map<std::string_view, Direct> kByName = {
    {"neg", {Form::elements, 1, loops::neg}},
    {"sqrt", {Form::elements, 1, loops::sqrt}},
    {"rsqrt", {Form::elements, 1, loops::rsqrt}},
    {"reciprocal", {Form::elements, 1, loops::reciprocal}},
    {"add", {Form::elements, 2, loops::add}},
    {"sub", {Form::elements, 2, loops::sub}},
    {"mul", {Form::elements, 2, loops::mul}},
    {"div", {Form::elements, 2, loops::div}},
    {"maximum", {Form::elements, 2, loops::maximum}},
    {"minimum", {Form::elements, 2, loops::minimum}},
    {"clamp_min", {Form::elements, 2, loops::maximum}},
    {"clamp_max", {Form::elements, 2, loops::minimum}},
    {"pow", {Form::elements, 2, nullptr, false, false, true}},
    {"clamp", {Form::elements, 3, loops::clamp}},
    {"lerp", {Form::elements, 3, loops::lerp}},
    {"addcmul", {Form::elements, 3, loops::addcmul}},
    {"addcdiv", {Form::elements, 3, loops::addcdiv}},
    {"threshold_backward", {Form::elements, 3, loops::threshold_backward}},
    {"gt", {Form::flags, 2, loops::gt}},
    {"ge", {Form::flags, 2, loops::ge}},
    {"lt", {Form::flags, 2, loops::lt}},
    {"le", {Form::flags, 2, loops::le}},
    {"eq", {Form::flags, 2, loops::eq}},
    {"ne", {Form::flags, 2, loops::ne}},
    {"fill", {Form::fills, 1}},
    {"zero", {Form::fills, 1}},
    {"sum", {Form::reduces, 1}},
    {"mean", {Form::reduces, 1, nullptr, false, false, false, true}},
    {"linalg_vector_norm", {Form::reduces, 1, nullptr, false, false, false, false, true}},
    {"mm", {Form::multiplies, 2}},
    {"addmm", {Form::multiplies, 3, nullptr, false, false, false, false, false, true}},
};
// Of the overloads, those whose arguments are what the table says.
const std::string_view kOverloads[] = {"", "Tensor", "Scalar", "Tensor_Scalar", "List", "ScalarList", "dim", "dim_IntList"};

bool is_float(const at::Tensor& t) { return t.scalar_type() == c10::ScalarType::Float; }
float* floats_of(const at::Tensor& t) { return reinterpret_cast<float*>(bytes_of(t)) + t.storage_offset(); }

// A tensor of one element, on the host or the device.
std::optional<float> element_of(const at::Tensor& t) {
  const char* bytes = bytes_of(t) + t.storage_offset() * t.itemsize();
  switch (t.scalar_type()) {
    case c10::ScalarType::Float: return *reinterpret_cast<const float*>(bytes);
    case c10::ScalarType::Double: return static_cast<float>(*reinterpret_cast<const double*>(bytes));
    case c10::ScalarType::Long: return static_cast<float>(*reinterpret_cast<const int64_t*>(bytes));
    case c10::ScalarType::Int: return static_cast<float>(*reinterpret_cast<const int32_t*>(bytes));
    default: return std::nullopt;
  }
}

bool is_dense(const at::Tensor& t) { return t.is_contiguous() || t.is_non_overlapping_and_dense(); }
// Element i of one lies where element i of the other does.
bool same_order(const at::Tensor& a, const at::Tensor& b) {
  return a.numel() == b.numel() && !a.is_neg() && ((a.is_contiguous() && b.is_contiguous()) || (a.sizes() == b.sizes() && a.strides() == b.strides()));
}

// A tensor's only element stands for any number of elements.
std::optional<Row> row_of(const Argument& v, const at::Tensor& like, bool exact_type) {
  if (v.is_number()) return Row{nullptr, static_cast<float>(v.number)};
  if (!v.is_tensor()) return std::nullopt;
  const at::Tensor& t = v.tensor();
  if (t.numel() == 1 && !t.is_neg()) {
    if (exact_type && !is_float(t) && !t.unsafeGetTensorImpl()->is_wrapped_number()) return std::nullopt;
    const auto one = element_of(t);
    if (!one) return std::nullopt;
    return Row{nullptr, *one};
  }
  if (!is_float(t) || !t.is_cuda() || !same_order(t, like)) return std::nullopt;
  return Row{floats_of(t), 0};
}

struct Call {
  Loop loop;
  void* out;
  Row rows[3];
  float factor;
  size_t count;
};

std::optional<Call> call_for(const Direct& direct, c10::ArrayRef<Argument> arguments, const at::Tensor& out, size_t i) {
  const bool flags = direct.form == Form::flags;
  if (out.scalar_type() != (flags ? c10::ScalarType::Bool : c10::ScalarType::Float) || !out.is_cuda() || out.is_neg() || !is_dense(out)) return std::nullopt;
  Call call{direct.loop, bytes_of(out) + out.storage_offset() * out.itemsize(), {}, 1, static_cast<size_t>(out.numel())};
  for (size_t o = 0; o < direct.operands; o++) {
    if (o >= arguments.size()) return std::nullopt;
    const Argument v = direct.each ? at_index(arguments[o], i) : arguments[o];
    if (v.is == Argument::Is::nothing && direct.loop == loops::clamp && o > 0) {
      call.rows[o].one = o == 1 ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::infinity();
      continue;
    }
    const auto row = row_of(v, out, flags);
    if (!row) return std::nullopt;
    call.rows[o] = *row;
  }
  if (arguments.size() > direct.operands) {
    const Argument factor = direct.each ? at_index(arguments[direct.operands], i) : arguments[direct.operands];
    if (!factor.is_number()) return std::nullopt;
    call.factor = static_cast<float>(factor.number);
  }
  if (direct.is_power) {
    if (call.rows[1].many) return std::nullopt;
    const float power = call.rows[1].one;
    call.loop = power == 2 ? loops::square : power == 0.5f ? loops::sqrt : power == -0.5f ? loops::rsqrt : loops::pow;
  }
  return call;
}

// A counter: one 64-bit number and a whole number that is added (batch normalisation counts its batches).
bool count_up(const Direct& direct, c10::ArrayRef<Argument> arguments, const at::Tensor& out) {
  if (!direct.in_place || direct.loop != loops::add || arguments.size() != 3 || out.scalar_type() != c10::kLong || out.numel() != 1 || !out.is_cuda()) return false;
  if (!arguments[2].is_number() || arguments[2].number != 1) return false;
  int64_t more;
  if (arguments[1].is_number() && arguments[1].number == std::floor(arguments[1].number) && std::fabs(arguments[1].number) < 1 << 30) {
    more = static_cast<int64_t>(arguments[1].number);
  } else if (arguments[1].is_tensor() && arguments[1].tensor().scalar_type() == c10::kLong && arguments[1].tensor().numel() == 1) {
    const at::Tensor& t = arguments[1].tensor();
    more = reinterpret_cast<const int64_t*>(bytes_of(t))[t.storage_offset()];
  } else {
    return false;
  }
  reinterpret_cast<int64_t*>(bytes_of(out))[out.storage_offset()] += more;
  return true;
}

bool compute_elements(const Direct& direct, c10::ArrayRef<Argument> arguments, const Argument& result) {
  const Argument& outs = direct.in_place ? arguments[0] : result;
  if (!direct.each) {
    if (!outs.is_tensor()) return false;
    const auto call = call_for(direct, arguments, outs.tensor(), 0);
    if (call) compute(call->loop, call->out, call->rows, direct.operands, call->factor, call->count, direct.form == Form::flags);
    return call.has_value() || count_up(direct, arguments, outs.tensor());
  }
  if (!outs.is_list()) return false;
  c10::SmallVector<Call, 16> calls;
  for (size_t i = 0; i < outs.count; i++) {
    const Argument out = at_index(outs, i);
    if (!out.is_tensor()) return false;
    const auto call = call_for(direct, arguments, out.tensor(), i);
    if (!call) return false;
    calls.push_back(*call);
  }
  for (const Call& call : calls) compute(call.loop, call.out, call.rows, direct.operands, call.factor, call.count, false);
  return true;
}

bool fill(c10::ArrayRef<Argument> arguments) {
  if (!arguments[0].is_tensor()) return false;
  const at::Tensor& to = arguments[0].tensor();
  if (!is_float(to) || !is_dense(to) || (arguments.size() > 1 && !arguments[1].is_number())) return false;
  std::fill_n(floats_of(to), to.numel(), arguments.size() > 1 ? static_cast<float>(arguments[1].number) : 0.0f);
  return true;
}

// Of all elements to one, or of a matrix's rows (sum over dimension 0).
bool reduce(const Direct& direct, c10::ArrayRef<Argument> arguments, const Argument& result) {
  if (!arguments[0].is_tensor() || !result.is_tensor()) return false;
  const at::Tensor &from = arguments[0].tensor(), &to = result.tensor();
  if (!is_float(from) || !is_float(to) || !from.is_cuda() || from.is_neg() || !is_dense(from) || from.numel() == 0) return false;
  if (direct.is_norm && (!arguments[1].is_number() || arguments[1].number != 2)) return false;
  if (to.numel() == 1) {
    const size_t count = static_cast<size_t>(from.numel());
    const float total = direct.is_norm ? loops::sum_of_squares(floats_of(from), count) : loops::sum(floats_of(from), count);
    *floats_of(to) = direct.is_norm ? std::sqrt(total) : direct.is_mean ? total / static_cast<float>(count) : total;
    return true;
  }
  if (direct.is_norm || from.dim() != 2 || !from.is_contiguous() || !to.is_contiguous() || arguments.size() < 2) return false;
  const Argument& dimensions = arguments[1];
  if (dimensions.is != Argument::Is::dimensions || dimensions.count != 1 || (dimensions.number != 0 && dimensions.number != -2)) return false;
  loops::sum_rows(floats_of(to), floats_of(from), static_cast<size_t>(from.size(0)), static_cast<size_t>(from.size(1)),
                  direct.is_mean ? static_cast<float>(from.size(0)) : 1.0f);
  return true;
}

bool multiply(const Direct& direct, c10::ArrayRef<Argument> arguments, const Argument& result) {
  constexpr int64_t kMost = 1 << 20;  // multiplications; beyond, a library's blocking pays
  const size_t first = direct.adds ? 1 : 0;
  if (!result.is_tensor() || !arguments[first].is_tensor() || !arguments[first + 1].is_tensor()) return false;
  const at::Tensor &a = arguments[first].tensor(), &b = arguments[first + 1].tensor(), &to = result.tensor();
  for (const at::Tensor* t : {&a, &b, &to})
    if (!is_float(*t) || !t->is_cuda() || t->is_neg() || t->dim() != 2) return false;
  if (!to.is_contiguous() || a.size(0) * a.size(1) * b.size(1) > kMost) return false;
  const float* bias = nullptr;
  if (direct.adds) {
    if (!arguments[0].is_tensor()) return false;
    const at::Tensor& added = arguments[0].tensor();
    if (!is_float(added) || !added.is_cuda() || added.is_neg() || added.dim() != 1 || added.size(0) != b.size(1) || !added.is_contiguous()) return false;
    for (size_t i = 3; i < arguments.size(); i++)
      if (!arguments[i].is_number() || arguments[i].number != 1) return false;
    bias = floats_of(added);
  }
  loops::multiply(floats_of(to), {floats_of(a), a.size(0), a.size(1), a.stride(0), a.stride(1)}, {floats_of(b), b.size(0), b.size(1), b.stride(0), b.stride(1)},
                  bias);
  return true;
}

}  // namespace

const Direct* direct_of(const c10::FunctionSchema& schema) {
  std::string_view name = schema.name();
  if (name.substr(0, 6) != "aten::") return nullptr;
  name.remove_prefix(6);
  constexpr std::string_view kEach = "_foreach_";
  const bool each = name.substr(0, kEach.size()) == kEach;
  if (each) name.remove_prefix(kEach.size());
  const bool in_place = !name.empty() && name.back() == '_';
  if (in_place) name.remove_suffix(1);
  const std::string_view overload = schema.overload_name();
  const auto known = kByName.find(name);
  if (known == kByName.end() || std::find(std::begin(kOverloads), std::end(kOverloads), overload) == std::end(kOverloads)) return nullptr;
  const Form form = known->second.form;
  if (form == Form::fills ? !in_place || each : form != Form::elements && (in_place || each)) return nullptr;
  auto* direct = new Direct(known->second);  // as long-lived as the operator
  direct->in_place = in_place;
  direct->each = each;
  return direct;
}

bool run_directly(const Direct& direct, c10::ArrayRef<Argument> arguments, const Argument& result) {
  switch (direct.form) {
    case Form::elements:
    case Form::flags: return compute_elements(direct, arguments, result);
    case Form::fills: return fill(arguments);
    case Form::reduces: return reduce(direct, arguments, result);
    case Form::multiplies: return multiply(direct, arguments, result);
  }
  return false;
}

}  // namespace gpumem::tracer
