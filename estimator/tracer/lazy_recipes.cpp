// SPDX-License-Identifier: Apache-2.0
// Recipes carried out, and their table. See lazy_recipes.h.

#include "lazy_recipes.h"

#include "cpu_run.h"
#include "dispatch_key.h"
#include "lazy_host.h"
#include "storage_states.h"

#include <ATen/EmptyTensor.h>

#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <stdexcept>
#include <unordered_map>

namespace gpumem::tracer {
namespace {

const c10::DispatchKeySet kOnCpu(c10::DispatchKey::CPU);

struct LazyStorage {
  c10::weak_intrusive_ptr<c10::StorageImpl> alive;
  const void* data;
  RecipePointer recipe;
};

std::atomic<bool> ever_lazy{false};
size_t computed_bytes = 0;  // under the table's lock

std::unordered_map<c10::StorageImpl*, LazyStorage>& lazy_storages() {
  static auto* table = new std::unordered_map<c10::StorageImpl*, LazyStorage>;
  return *table;
}

at::Tensor flat(int64_t count, c10::ScalarType type) { return at::Tensor(at::detail::empty_strided_cpu({count}, {1}, type)); }

void call(const char* name, const char* overload, torch::jit::Stack stack) {
  c10::Dispatcher::singleton().findSchemaOrThrow(name, overload).redispatchBoxed(kOnCpu, &stack);
}

// The values of a recipe. Nothing may see it: called with the dispatcher's extras blocked.
at::Tensor carry_out(const Recipe& recipe, int64_t count) {
  if (recipe.lost) {
    at::Tensor t = flat(count, recipe.type);
    call("aten::normal_", "", {t, 0.0, 1.0, generator_at({at::mt19937(0x6770756d), 0})});
    return t;
  }
  if (recipe.mapped()) {
    // The file may have been cut short since: that would be a bus error.
    at::Tensor t = flat(count, recipe.type);
    iovec to{t.mutable_data_ptr(), t.nbytes()}, from{const_cast<void*>(recipe.file.const_data_ptr()), t.nbytes()};
    if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) != static_cast<ssize_t>(t.nbytes())) throw std::runtime_error("the file is gone");
    return t;
  }
  if (recipe.random) {
    at::Tensor t = flat(count, recipe.type);
    torch::jit::Stack stack = recipe.arguments;
    stack[0] = t;
    stack[recipe.generator] = generator_at(*recipe.random);
    recipe.handle->redispatchBoxed(kOnCpu, &stack);
    return t;
  }
  at::Tensor from = carry_out(*recipe.before, count);
  if (!recipe.handle) {
    at::Tensor t = flat(count, recipe.type);
    call("aten::copy_", "", {t, from, false});
    return t;
  }
  torch::jit::Stack stack = recipe.arguments;
  stack[0] = from;
  recipe.handle->redispatchBoxed(kOnCpu, &stack);
  return stack.back().toTensor();
}

}  // namespace

std::mutex& lazy_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

RecipePointer lost_recipe() {
  static const auto* lost = new RecipePointer([] {
    auto recipe = std::make_shared<Recipe>();
    recipe->lost = true;
    return recipe;
  }());
  return *lost;
}

RecipePointer kept_recipe() {
  static const auto* kept = new RecipePointer([] {
    auto recipe = std::make_shared<Recipe>();
    recipe->lost = recipe->kept = true;
    return recipe;
  }());
  return *kept;
}

RecipePointer random_recipe(const Operator& op, torch::jit::Stack arguments, SkippedState before, c10::ScalarType type) {
  auto recipe = std::make_shared<Recipe>();
  recipe->handle = c10::Dispatcher::singleton().findSchemaOrThrow(op.name.c_str(), "");
  recipe->arguments = std::move(arguments);
  recipe->random = before;
  recipe->generator = op.generator;
  recipe->type = type;
  return recipe;
}

RecipePointer mapped_recipe(const at::Tensor& file) {
  auto recipe = std::make_shared<Recipe>();
  recipe->file = file;
  recipe->type = file.scalar_type();
  return recipe;
}

RecipePointer then(RecipePointer before, const c10::OperatorHandle& handle, torch::jit::Stack arguments, c10::ScalarType type) {
  auto recipe = std::make_shared<Recipe>();
  recipe->before = std::move(before);
  recipe->handle = handle;
  recipe->arguments = std::move(arguments);
  recipe->type = type;
  return recipe;
}

RecipePointer cast(RecipePointer before, c10::ScalarType type) {
  if (before->type == type && !before->mapped()) return before;
  auto recipe = std::make_shared<Recipe>();
  recipe->before = std::move(before);
  recipe->type = type;
  return recipe;
}

bool any_recipes() { return ever_lazy.load(std::memory_order_relaxed); }

RecipePointer recipe_of(const at::Tensor& t) {
  if (!any_recipes()) return nullptr;
  c10::StorageImpl* storage = storage_of(t);
  if (storage->nbytes() <= kLazyBytes) return nullptr;
  std::lock_guard<std::mutex> hold(lazy_mutex());
  auto it = lazy_storages().find(storage);
  return it != lazy_storages().end() && it->second.data == storage->data() ? it->second.recipe : nullptr;
}

void set_recipe(const at::Tensor& t, RecipePointer recipe) {
  constexpr size_t kSweepAt = 1024;
  static size_t sweep_at = kSweepAt;
  if (!recipe && !any_recipes()) return;
  c10::StorageImpl* storage = storage_of(t);
  std::lock_guard<std::mutex> hold(lazy_mutex());
  auto& table = lazy_storages();
  auto it = table.find(storage);
  if (!recipe) {
    if (it != table.end()) table.erase(it);
    return;
  }
  ever_lazy.store(true);
  if (it != table.end()) {
    it->second.data = storage->data();
    it->second.recipe = std::move(recipe);
    return;
  }
  if (table.size() >= sweep_at) {
    for (auto old = table.begin(); old != table.end();) old = old->second.alive.expired() ? table.erase(old) : std::next(old);
    sweep_at = std::max(kSweepAt, 2 * table.size());
  }
  table.emplace(storage, LazyStorage{t.storage().getWeakStorageImpl(), storage->data(), std::move(recipe)});
}

bool is_lazy(const at::Tensor& t) { return recipe_of(t) != nullptr; }

bool compute_lazy(const at::Tensor& t) {
  RecipePointer recipe = recipe_of(t);
  if (!recipe) return true;
  c10::StorageImpl* storage = storage_of(t);
  if (recipe->kept) {
    set_recipe(t, nullptr);
    count_lost();
    return true;
  }
  {
    std::lock_guard<std::mutex> hold(lazy_mutex());
    if (computed_bytes + storage->nbytes() > kComputedBytes) return false;
    computed_bytes += storage->nbytes();
  }
  try {
    Unseen unseen;
    // What is lost has no type but that of who asks.
    Recipe typed = *recipe;
    if (typed.lost) typed.type = t.scalar_type();
    int64_t count = storage->nbytes() / c10::elementSize(typed.type);
    at::Tensor values = carry_out(typed, count);
    std::memcpy(const_cast<void*>(storage->data()), values.const_data_ptr(), count * c10::elementSize(typed.type));
  } catch (const std::exception&) {
    return false;
  }
  set_recipe(t, nullptr);
  if (recipe->lost) count_lost();
  return true;
}

void compute_lazy_at(const void* address) {
  at::Tensor found;
  {
    std::lock_guard<std::mutex> hold(lazy_mutex());
    for (auto& [storage, lazy] : lazy_storages()) {
      if (lazy.data != address || lazy.recipe->lost) continue;
      auto alive = lazy.alive.lock();
      if (!alive || alive->data() != address) continue;
      found = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(std::move(alive)), kOnCpu, c10::scalarTypeToTypeMeta(lazy.recipe->type));
      break;
    }
  }
  if (found.defined()) compute_lazy(found);
}

}  // namespace gpumem::tracer
