// SPDX-License-Identifier: Apache-2.0
// Choices and counts of operators that the general rules would get wrong: routing, sparse matrices, boxes. In the job's Python, in probes only.
#pragma once

#include "operators.h"

#include <ATen/core/stack.h>

namespace gpumem::tracer {

// Note [Choices]
// topk, argmax, max and min over a dimension choose by values. Where those were not computed, every row would choose the same
// (index 0): a mixture of experts would send all its tokens to one of them, or, where sizes are then guessed, all tokens to
// each. A trained router is balanced, so row r chooses r*k, r*k+1, … modulo the number of choices, and goes on as if that were exact:
// what is counted of it later (one_hot, bincount, nonzero) adds up. It counts as a guessed value.

// Writes the indices of a choice among unknown values into `returns`; false if `op` is none or they cannot be written.
bool spread_choice(Operator& op, c10::ArrayRef<c10::IValue> arguments, c10::IValue* returns);

// Note [Sparse matrices]
// coalesce() reads back how many different indices there are. Answered here: the true number where the indices are known, else
// all of them (a guess). What the CUDA kernel allocates is allocated: flattened indices, their order, offsets, the sort's
// buffer (twice a key and a value each), then the new values and indices.

// The operator's answer in place of its arguments on the stack; false: leave it to PyTorch.
bool answer_coalesce(Operator& op, torch::jit::Stack& stack, size_t first);

}  // namespace gpumem::tracer
