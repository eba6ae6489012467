// SPDX-License-Identifier: Apache-2.0
// Operators on strided nested tensors: values of small ones. In the job's Python, in probes only.
#pragma once

#include "operators.h"

#include <ATen/core/stack.h>
#include <c10/core/DispatchKeySet.h>

namespace gpumem::tracer {

// Note [Nested tensors]
// A strided nested tensor is one buffer and, on the host, the sizes, strides and offsets of its parts: what is known of it is what is
// known of its buffer. Where everything that an operator reads is small and exact it runs on the CPU over copies, made before the
// device's kernel runs, and the results are written over the device's. Jagged ones are a Python class around plain tensors, and are
// followed where their handlers call plain operators (python_handlers.h).

bool is_nested(const at::Tensor& t);

// Writes a CPU tensor's elements, nested or not, over those of a device tensor of the same make. False where they are not, or too many.
bool write_nested(const at::Tensor& device, const at::Tensor& cpu);

// The operator has a nested tensor among its arguments.
void follow_nested(const c10::OperatorHandle& handle, Operator& op, c10::DispatchKeySet rest, torch::jit::Stack* stack, size_t first);

}  // namespace gpumem::tracer
