// SPDX-License-Identifier: Apache-2.0
// The commonest operators on small float32 tensors without PyTorch's machinery. Runs inside the job's Python, in probes only.
#pragma once

#include "arguments.h"
#include "operators.h"

namespace gpumem::tracer {

// Note [Direct kernels]
// A CPU kernel of PyTorch takes 2 to 10 µs for a few hundred numbers, nearly all of it for its iterator, scalars that become tensors and
// code that is not in the cache; a training loop of small tensors would cost twice what it does without values. So elementwise
// arithmetic, its foreach forms, sums, norms and matrix products of float32 are computed here, to the same results but for rounding
// (tests/programs/values_direct.py compares them). Whatever is not exactly that (another type, broadcast other than of one element,
// overlapping or differently ordered memory) is left to PyTorch's kernel.
struct Direct;  // one operator's way of being computed

// By the operator's schema; null: it has none.
const Direct* direct_of(const c10::FunctionSchema& schema);

// Computes the device tensors' values from their arguments: `result` is the device's own, or where the operator writes in place its
// first argument is changed. All arguments are small and known. False: nothing was changed.
bool run_directly(const Direct& direct, c10::ArrayRef<Argument> arguments, const Argument& result);

}  // namespace gpumem::tracer
