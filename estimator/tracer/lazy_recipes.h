// SPDX-License-Identifier: Apache-2.0
// How to compute a lazy host tensor (lazy_host.h), and the table of those that there are. In the job's Python, in probes only.
#pragma once

#include "generator_skips.h"
#include "operators.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <memory>
#include <optional>

namespace gpumem::tracer {

// Steps, last first; immutable and shared by what was derived from a tensor. All values of a storage, as one flat tensor.
struct Recipe {
  std::shared_ptr<const Recipe> before;             // none: where values begin
  std::optional<c10::OperatorHandle> handle;        // applied to what `before` gives, which is argument 0; none: a cast
  torch::jit::Stack arguments;
  c10::ScalarType type = c10::ScalarType::Float;    // of the result
  std::optional<SkippedState> random;               // of a fill
  int generator = -1;                               // its argument
  at::Tensor file;                                  // values begin in a mapped file
  bool lost = false;                                // nobody knows any more
  bool kept = false;                                // lost, but for a part that was written: its bytes stay as they are
  bool mapped() const { return file.defined(); }
};
using RecipePointer = std::shared_ptr<const Recipe>;

RecipePointer lost_recipe();
RecipePointer kept_recipe();
RecipePointer random_recipe(const Operator& op, torch::jit::Stack arguments, SkippedState before, c10::ScalarType type);
RecipePointer mapped_recipe(const at::Tensor& file);
RecipePointer then(RecipePointer before, const c10::OperatorHandle& handle, torch::jit::Stack arguments, c10::ScalarType type);
RecipePointer cast(RecipePointer before, c10::ScalarType type);

// The recipe of a tensor's storage, or null: it is real.
RecipePointer recipe_of(const at::Tensor& t);
void set_recipe(const at::Tensor& t, RecipePointer recipe);
// False while no storage in the process has ever been lazy: costs nothing.
bool any_recipes();

}  // namespace gpumem::tracer
