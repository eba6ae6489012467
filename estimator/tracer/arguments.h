// SPDX-License-Identifier: Apache-2.0
// An operator's arguments and results as they are looked at, whether they came boxed or as C++ values. In the job's Python, in probes only.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/IListRef.h>

#include <type_traits>
#include <utility>

namespace gpumem::tracer {

template <class T>
using Bare = std::remove_cv_t<std::remove_reference_t<T>>;

// std::optional, and c10's own before 2.4.
template <class T, class = void>
struct OptionalOf {
  using type = void;
};
template <class T>
struct OptionalOf<T, std::void_t<decltype(std::declval<const T&>().has_value()), decltype(*std::declval<const T&>())>> {
  using type = Bare<decltype(*std::declval<const T&>())>;
};

// One argument or result. Owns nothing: what it was made of must outlive it.
struct Argument {
  // hidden: a list of tensors that cannot be looked at as it is; boxed: a list of IValues
  enum class Is : uint8_t { nothing, other, number, tensor, cuda_device, dimensions, hidden, tensors, numbers, boxed };
  Is is = Is::other;
  double number = 0;              // of dimensions: the first
  const void* at = nullptr;       // the tensor, or the list's first element
  size_t count = 0;               // of a list

  const at::Tensor& tensor() const { return *static_cast<const at::Tensor*>(at); }
  bool is_number() const { return is == Is::number; }
  bool is_tensor() const { return is == Is::tensor; }
  bool is_list() const { return is >= Is::tensors; }
};

template <class T>
Argument argument_of(const T& v) {
  using Is = Argument::Is;
  if constexpr (std::is_same_v<T, at::Tensor>) {
    return v.defined() ? Argument{Is::tensor, 0, &v, 0} : Argument{};
  } else if constexpr (std::is_same_v<T, at::Scalar>) {
    if (v.isSymbolic() || v.isComplex()) return {};
    return {Is::number, v.isFloatingPoint() ? v.toDouble() : static_cast<double>(v.toLong()), nullptr, 0};
  } else if constexpr (std::is_arithmetic_v<T>) {
    return {Is::number, static_cast<double>(v), nullptr, 0};
  } else if constexpr (std::is_same_v<T, at::TensorList> || std::is_same_v<T, std::vector<at::Tensor>>) {
    return {Is::tensors, 0, v.data(), v.size()};
  } else if constexpr (std::is_same_v<T, at::ITensorListRef>) {
    return v.isUnboxed() ? argument_of(v.toUnboxed()) : Argument{Is::hidden, 0, nullptr, 0};
  } else if constexpr (std::is_same_v<T, c10::Device>) {
    return {v.is_cuda() ? Is::cuda_device : Is::other, 0, nullptr, 0};
  } else if constexpr (std::is_same_v<T, at::ArrayRef<at::Scalar>>) {
    return {Is::numbers, 0, v.data(), v.size()};
  } else if constexpr (std::is_same_v<T, at::IntArrayRef>) {
    return {Is::dimensions, v.empty() ? 0.0 : static_cast<double>(v[0]), nullptr, v.size()};
  } else if constexpr (std::is_same_v<T, at::OptionalIntArrayRef>) {
    return v.has_value() ? argument_of(*v) : Argument{Is::nothing, 0, nullptr, 0};
  } else if constexpr (!std::is_void_v<typename OptionalOf<T>::type>) {
    return v.has_value() ? argument_of(*v) : Argument{Is::nothing, 0, nullptr, 0};
  } else if constexpr (std::is_same_v<T, c10::IValue>) {
    if (v.isTensor()) return argument_of(v.toTensor());
    if (v.isNone()) return {Is::nothing, 0, nullptr, 0};
    if (v.isDouble()) return argument_of(v.toDouble());
    if (v.isInt()) return argument_of(v.toInt());
    if (v.isBool()) return argument_of(v.toBool());
    if (v.isIntList()) {
      const auto list = v.toIntList();
      return {Is::dimensions, list.empty() ? 0.0 : static_cast<double>(list.get(0)), nullptr, list.size()};
    }
    if (v.isList()) return {Is::boxed, 0, v.toListRef().data(), v.toListRef().size()};
    return {};
  } else {
    return {};
  }
}

// Its tensors, undefined ones left out; not those of boxed and hidden lists.
template <class Visit>
void each_tensor(const Argument& v, Visit&& visit) {
  if (v.is_tensor()) return visit(v.tensor());
  if (v.is != Argument::Is::tensors) return;
  for (size_t i = 0; i < v.count; i++) {
    const at::Tensor& t = static_cast<const at::Tensor*>(v.at)[i];
    if (t.defined()) visit(t);
  }
}

// What the argument is for the i-th tensor of a foreach operator.
inline Argument at_index(const Argument& v, size_t i) {
  using Is = Argument::Is;
  if (!v.is_list()) return v;
  if (i >= v.count) return {};
  if (v.is == Is::tensors) return argument_of(static_cast<const at::Tensor*>(v.at)[i]);
  if (v.is == Is::numbers) return argument_of(static_cast<const at::Scalar*>(v.at)[i]);
  return argument_of(static_cast<const c10::IValue*>(v.at)[i]);
}

}  // namespace gpumem::tracer
