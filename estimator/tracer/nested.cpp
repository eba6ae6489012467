// SPDX-License-Identifier: Apache-2.0
// See nested.h.

#include "nested.h"

#include "inputs.h"

#include <ATen/Functions.h>
#include <ATen/NestedTensorImpl.h>

namespace gpumem::tracer {

bool is_nested(const at::Tensor& t) { return t.key_set().has(c10::DispatchKey::NestedTensor) && !t.key_set().has(c10::DispatchKey::Python); }

namespace {

// All that its memory holds, as one row.
at::Tensor memory_of(const at::Tensor& nested) { return at::native::get_nested_tensor_impl(nested)->get_unsafe_storage_as_tensor(); }

bool is_known_or_nested(const at::Tensor& t) {
  if (!is_nested(t) && !is_plain(t)) return false;
  return !t.is_cuda() || (is_small(t) && (state_of(t) == State::exact || storage_of(t)->nbytes() == 0));
}

at::Tensor copied_memory(const at::Tensor& device) { return device.is_cuda() ? alias_on_cpu(device).clone() : device; }

at::Tensor nested_on_cpu(const at::Tensor& t) {
  if (!is_nested(t)) return copied_memory(t);
  const auto* impl = at::native::get_nested_tensor_impl(t);
  return at::_nested_view_from_buffer(copied_memory(memory_of(t)), impl->get_nested_sizes(), impl->get_nested_strides(), impl->get_storage_offsets());
}

}  // namespace

bool write_nested(const at::Tensor& device, const at::Tensor& cpu) {
  if (!device.defined() || !cpu.defined() || !device.is_cuda() || is_nested(device) != is_nested(cpu) || !is_small(device)) return false;
  if (!is_nested(device)) {
    if (!is_plain(device) || !write_device(device, cpu)) return false;
    if (covers_storage(device) || state_of(device) != State::unknown) set_state(device, State::exact);
    return true;
  }
  Unseen unseen;
  const auto *to = at::native::get_nested_tensor_impl(device), *from = at::native::get_nested_tensor_impl(cpu);
  if (!at::equal(to->get_nested_sizes(), from->get_nested_sizes())) return false;
  // Part by part: the two may lie differently in their memory.
  const at::Tensor alias = at::_nested_view_from_buffer(alias_on_cpu(memory_of(device)), to->get_nested_sizes(), to->get_nested_strides(), to->get_storage_offsets());
  const auto written = alias.unbind(), read = cpu.unbind();
  for (size_t i = 0; i < written.size(); i++) written[i].copy_(read[i]);
  set_state(device, State::exact);
  return true;
}

void follow_nested(const c10::OperatorHandle& handle, Operator& op, c10::DispatchKeySet rest, torch::jit::Stack* stack, size_t first) {
  const Arguments arguments = arguments_on(*stack, first);
  bool known = (op.returns_tensor || op.writes) && op.generator < 0 && !(op.draws && draws(op, argument_of(arguments[2]))), on_device = false;
  for (const c10::IValue& v : arguments)
    each_tensor(v, [&](const at::Tensor& t) {
      on_device |= t.is_cuda();
      known = known && is_known_or_nested(t);
    });
  if (!on_device) return handle.redispatchBoxed(rest, stack);
  torch::jit::Stack real;
  if (known) {
    try {
      Unseen unseen;
      for (const c10::IValue& v : arguments) real.push_back(with_tensors(v, nested_on_cpu, c10::Device(c10::kCPU)));
    } catch (const std::exception&) {
      known = false;
    }
  }
  const torch::jit::Stack written = real;
  handle.redispatchBoxed(rest, stack);
  if (known) {
    try {
      Unseen unseen;
      handle.callBoxed(&real);
    } catch (const std::exception&) {  // the CPU cannot do it: what the device's own operators left stays
      known = false;
    }
  }
  const auto finish = [&](const c10::IValue& device, const c10::IValue* cpu) {
    std::vector<at::Tensor> values;
    if (cpu) each_tensor(*cpu, [&](const at::Tensor& t) { values.push_back(t); });
    size_t i = 0;
    each_tensor(device, [&](const at::Tensor& t) {
      const size_t place = i++;
      if (!t.is_cuda() || (!is_nested(t) && !is_plain(t))) return;
      bool right = false;
      try {
        right = place < values.size() && write_nested(t, values[place]);
      } catch (const std::exception&) {
      }
      // Memory that a kernel has written unseen is not the zeros that it was made of.
      if (!right && is_fillable(t) && state_of(t) == State::blank) {
        fill_plausible(is_nested(t) ? memory_of(t) : t);
        set_state(t, State::plausible);
      }
    });
  };
  for (size_t i = 0; i < arguments.size() && i < 64; i++)
    if (op.written >> i & 1) finish(arguments[i], known ? &written[i] : nullptr);
  for (size_t i = first; i < stack->size(); i++)
    if (i - first >= 64 || !(op.view_returns >> (i - first) & 1)) finish((*stack)[i], known && i - first < real.size() ? &real[i - first] : nullptr);
}

}  // namespace gpumem::tracer
