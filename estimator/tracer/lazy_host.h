// SPDX-License-Identifier: Apache-2.0
// Large tensors on the CPU whose values nobody has asked for yet. Runs inside the job's Python, in probes only.
#pragma once

#include "operators.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <optional>

namespace gpumem::tracer {

// Note [Lazy host tensors]
// A model is built on the CPU with random weights, cast, perhaps saved and loaded, and then moved to the device, where no
// kernel looks at them. So a floating-point CPU storage of more than kLazyBytes may be *lazy*: its pages were never touched
// (they read as zero and cost nothing) and a recipe says how to compute it: a random fill with the generator's state, or
// bytes of a mapped file, then the elementwise operations with numbers and the casts that followed. What is computed from
// lazy tensors by other operations is lazy without a recipe ("lost"), its shape taken from the Meta kernel.
//   * An operation that needs values (a small or integral result, .item(), numpy(), saving) computes the recipe first, over the
//     same addresses; lost values become normally distributed ones, which is counted as a guess. Up to kComputedBytes in
//     a process: a data set made by torch.randn has its true values, a model of billions of parameters never gets there.
//   * Beyond that, small results are plausible ones (1.0, 0, yes for "are all …?"), counted as guesses too.
//   * Integers, and storages that something wrote by other means, are always real.
// Tables are global and locked; work on one tensor by two threads at once is as undefined here as in PyTorch.
constexpr size_t kLazyBytes = 1 << 20;
constexpr size_t kComputedBytes = 256 << 20;

// An operator with tensors on the CPU only. True where the call was answered: its result is on the stack, nothing is to be run.
bool answer_lazily(const c10::OperatorHandle& handle, Operator& op, torch::jit::Stack& stack, size_t first);

// A copy between host and device has been made: what came from a device's unknown memory is lost, what was real is real.
void copied_to_host(const at::Tensor& to, bool known);

bool is_lazy(const at::Tensor& t);
// Computes the tensor's storage if it is lazy and small enough for what is left of kComputedBytes. False: it stays lazy.
bool compute_lazy(const at::Tensor& t);

// Storages that are lazy, by address, for writers of files: computes [address, address + bytes) if it has a recipe.
void compute_lazy_at(const void* address);

std::mutex& lazy_mutex();

}  // namespace gpumem::tracer
