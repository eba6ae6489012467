// SPDX-License-Identifier: Apache-2.0
// Random initialisation of large CPU tensors, which nobody needs in a probe. Runs inside the job's Python, in probes only.
#pragma once

#include "operators.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

namespace gpumem::tracer {

// Note [Skipped fills]
// A model is built on the CPU with random weights and then moved to the device, where no kernel looks at them. Skipping the
// fill of a large floating-point CPU tensor leaves zero pages that were never touched: a model of 8 billion parameters costs
// neither time nor RAM. Integers are always filled (they are labels and tokens), and what is computed from a skipped tensor
// sees zeros, except that in-place scaling of it (trunc_normal_'s erfinv_, mul_, add_, clamp_) and copies or casts of it
// into another large CPU tensor are skipped as well.
constexpr size_t kSkippedFillBytes = 1 << 20;

// True where the call was answered: its result is on the stack and nothing is to be run.
bool skip_cpu_fill(const Operator& op, torch::jit::Stack& stack, size_t first);

}  // namespace gpumem::tracer
