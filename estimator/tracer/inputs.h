// SPDX-License-Identifier: Apache-2.0
// What an operator's tensors are and what is known of them, for whoever follows it. Runs inside the job's Python, in probes only.
#pragma once

#include "arguments.h"
#include "cpu_run.h"
#include "operators.h"
#include "storage_states.h"

#include <algorithm>
#include <atomic>

namespace gpumem::tracer {

// What is not a plain tensor belongs to someone else (fake, functional, batched …) and passes untouched. Sparse ones: sparse.h.
inline const c10::DispatchKeySet kNotPlain({c10::DispatchKey::Python, c10::DispatchKey::Functionalize, c10::DispatchKey::FuncTorchBatched,
                                            c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::ZeroTensor, c10::DispatchKey::NestedTensor});

inline bool is_plain(const at::Tensor& t) {
  const auto* impl = t.unsafeGetTensorImpl();
  return !t.key_set().has_any(kNotPlain) && t.layout() == c10::kStrided && impl->has_storage() && !t.is_meta() && !t.is_quantized() &&
         !impl->has_symbolic_sizes_strides();
}

inline std::atomic<uint64_t> operators_run{0}, operators_not_run{0};
inline thread_local uint64_t followed = 0;  // operators seen on this thread: tells whether a kernel called others
inline thread_local uint64_t worked = 0;    // of those, on the device and more than an allocation: whether they may have changed values

inline void lower(State& state, State other) {
  if (other < state) state = other;
}

// Of an operator that may draw random numbers: native_dropout(input, p, train) in evaluation does not.
inline bool draws(const Operator& op, const Argument& third) { return op.draws && !(third.is_number() && third.number == 0 && op.name == "aten::native_dropout"); }

struct Inputs {
  bool device = false;   // any tensor or device argument is CUDA's
  bool untouched = false;
  bool small = true;     // every tensor that is read or written is small
  bool writes_small = false;
  bool draws = false;    // random numbers that the CPU must not draw
  State state = State::exact;  // the least known of the tensors that are read
  size_t largest_bytes = 0;

  // One of the tensors of the argument at this position.
  void add(const Operator& op, size_t position, const at::Tensor& t) {
    if (!is_plain(t)) {
      untouched = true;
      return;
    }
    const bool on_device = t.is_cuda();
    device |= on_device;
    const size_t nbytes = is_single(t) ? t.itemsize() : storage_of(t)->nbytes();
    const bool writes = position < 64 && (op.written >> position & 1);
    if (nbytes > limit_bytes(t)) small = false;
    else if (writes) writes_small = true;
    if (!small) return;
    // Plausible integers and masks are computed with wherever they are followed: counts are made of them.
    if (t.is_floating_point() || t.is_complex()) largest_bytes = std::max(largest_bytes, std::min(nbytes, t.nbytes()));
    if (!on_device) {
      if (writes) small = false;  // such mixtures are copy_'s alone
      return;
    }
    if (position >= 64 || !(op.write_only >> position & 1)) lower(state, state_of(t));
  }

  // Whether the operator really runs, of the kinds that may.
  bool runs(const Operator& op) const {
    return op.runs_on_cpu && small && !draws &&
           (state == State::exact ||
            (state != State::unknown && op.choice == Choice::none && largest_bytes <= (op.compares ? kFillLimitBytes : kPlausibleLimitBytes)));
  }
};

// What is written in part keeps the rest of its bytes, and so no more than their state.
inline void mark_written(const at::Tensor& t, State state, bool overwritten) {
  if (!t.is_cuda() || !is_small(t)) return;
  State before = state_of(t);
  if (overwritten && covers_storage(t)) {
    set_state(t, state);
  } else if (before != State::unknown) {
    set_state(t, before == State::blank ? state : std::min(before, state));
  }
}

// A result that nobody computed.
inline void mark_result_not_run(const Operator& op, const at::Tensor& t) {
  if (!t.is_cuda() || !is_plain(t) || !is_fillable(t)) return;
  fill_plausible(t, op.is_all);
  set_state(t, State::plausible);
}

// A new block that the program may read before it writes: zeros.
inline void mark_allocated(const at::Tensor& t) {
  if (!is_plain(t) || !t.is_cuda() || !is_fillable_storage(t) || !storage_of(t)->nbytes()) return;
  std::memset(bytes_of(t), 0, storage_of(t)->nbytes());
  set_state(t, State::blank);
}

// The boxed fallback (fallback.cpp).
void follow(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, torch::jit::Stack* stack);

}  // namespace gpumem::tracer
