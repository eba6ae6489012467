// SPDX-License-Identifier: Apache-2.0
// Operators whose output size depends on values. Runs inside the job's Python, in probes only.
#pragma once

#include "operators.h"

#include <ATen/core/stack.h>

namespace gpumem::tracer {

// Note [Sizes from values]
// The CUDA kernels of nonzero and unique read a count back from device memory that no kernel has written: old bytes there
// would become a size. So these few are answered here. `exact` holds the CPU kernel's results where the input is known,
// else null: then the answer is the one that allocates the most and keeps a program going (every element is non-zero,
// every element is different, and their indices are those of all) and counts as a guess. Outputs are allocated on the device as the CUDA kernels do.
// Arguments are popped from the stack and the results pushed.
void answer_size(Operator& op, torch::jit::Stack& stack, size_t first, torch::jit::Stack* exact);

}  // namespace gpumem::tracer
