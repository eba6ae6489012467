// SPDX-License-Identifier: Apache-2.0
// See choices.h.

#include "choices.h"

#include "cpu_run.h"
#include "storage_states.h"

namespace gpumem::tracer {

bool spread_choice(Operator& op, c10::ArrayRef<c10::IValue> arguments, c10::IValue* returns) {
  const size_t which = op.choice == Choice::second ? 1 : 0;
  if (op.choice == Choice::none || arguments.empty() || !arguments[0].isTensor() || which >= op.returns || !returns[which].isTensor()) return false;
  const at::Tensor &from = arguments[0].toTensor(), &to = returns[which].toTensor();
  if (!to.defined() || !to.is_cuda() || to.scalar_type() != c10::kLong || !is_small(to) || !to.is_contiguous() || from.dim() == 0) return false;
  const bool last = op.choice_dim < 0;
  const size_t at_dim = last ? 0 : static_cast<size_t>(op.choice_dim);
  const bool whole = !last && (arguments.size() <= at_dim || !arguments[at_dim].isInt());
  int64_t dim = last ? -1 : whole ? 0 : arguments[at_dim].toInt();
  if (dim < 0) dim += from.dim();
  const int64_t choices = whole ? from.numel() : from.size(dim), count = to.numel();
  if (choices <= 0) return false;
  const int64_t start = op.choice_k && count == from.numel() ? 0 : choices * 3 / 7;
  const int64_t chosen = op.choice_k && to.dim() == from.dim() ? to.size(dim) : 1;
  int64_t inner = 1;
  if (op.choice_k)
    for (int64_t d = dim + 1; d < to.dim(); d++) inner *= to.size(d);
  auto* data = reinterpret_cast<int64_t*>(bytes_of(to)) + to.storage_offset();
  for (int64_t i = 0; i < count; i++) {
    const int64_t row = i / (inner * chosen) * inner + i % inner, place = i / inner % chosen;
    data[i] = (start + row * chosen + place) % choices;
  }
  set_state(to, State::exact);
  count_guess(op, Guess::scalar);
  return true;
}

}  // namespace gpumem::tracer
