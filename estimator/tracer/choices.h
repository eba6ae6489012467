// SPDX-License-Identifier: Apache-2.0
// Choices of operators that the general rules would get wrong: routing, words, orders. In the job's Python, in probes only.
#pragma once

#include "operators.h"

#include <ATen/core/stack.h>

namespace gpumem::tracer {

// Note [Choices]
// topk, argmax, max and min over a dimension choose by values, multinomial by chances, sort all of them. Where those were not computed, every row would choose
// the same (index 0): a mixture of experts would send all its tokens to one of them, or, where sizes are then guessed, all tokens to
// each; what is put into a sorted order would become its first element. A trained router is balanced, so row r chooses s+r*k, s+r*k+1, …
// modulo the number of choices, and goes on as if that were exact: what is counted of it later (one_hot, bincount, nonzero) adds up. It
// counts as a guessed value. What is sorted keeps its order. s is three sevenths of the choices: vocabularies begin with words that end a
// text, and so would every text if the first were chosen (nor may s be a simple fraction: a beam search chooses from beams times words).

// Writes the indices of a choice among unknown values into `returns`; false if `op` is none or they cannot be written.
bool spread_choice(Operator& op, c10::ArrayRef<c10::IValue> arguments, c10::IValue* returns);

}  // namespace gpumem::tracer
