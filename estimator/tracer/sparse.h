// SPDX-License-Identifier: Apache-2.0
// Operators on sparse tensors: values of small ones, sizes that depend on values. In the job's Python, in probes only.
#pragma once

#include "operators.h"

#include <ATen/core/stack.h>
#include <c10/core/DispatchKeySet.h>

namespace gpumem::tracer {

// Note [Sparse matrices]
// A sparse tensor has no storage of its own: what is known of it is what is known of its indices and values. Where these are
// small and exact, the operator runs on the CPU over copies of them, and the results are written over the device's.
//
// coalesce() reads back how many different indices there are. Answered here: the true number where the indices are known, else
// all of them (a guess). What the CUDA kernel allocates is allocated: flattened indices, their order, offsets, the sort's
// buffer (twice a key and a value each), then the new values and indices.
//
// softmax reads back how many pools (rows, say) have elements. What it reads is zero here (allocator_events.cpp), so the memory
// that it would have taken for the pools is taken beside it, for as long as it runs.

// The layouts' bits without those of the backends (each backend had keys of its own for CSR once).
const c10::DispatchKeySet kSparse(c10::DispatchKeySet::RAW,
                                  c10::DispatchKeySet({c10::DispatchKey::SparseCUDA, c10::DispatchKey::SparseCsrCUDA}).raw_repr() & ~c10::full_backend_mask);

// The operator has a sparse tensor among its arguments.
void follow_sparse(const c10::OperatorHandle& handle, Operator& op, c10::DispatchKeySet rest, torch::jit::Stack* stack, size_t first);

}  // namespace gpumem::tracer
