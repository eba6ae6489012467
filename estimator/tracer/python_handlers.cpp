// SPDX-License-Identifier: Apache-2.0
// See python_handlers.h.

#include "python_handlers.h"

#include "dispatch_key.h"

#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 15

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/PyInterpreter.h>

#include <dlfcn.h>

#include <cstring>
#include <vector>

namespace gpumem::tracer {
namespace {

using VTable = c10::impl::PyInterpreterVTable;
using Dispatch = void (*)(const VTable*, const c10::OperatorHandle&, torch::jit::Stack*);

Dispatch original;

// Puts the key back among the excluded ones however the handler ends: an error in Python comes as an exception.
struct Followed {
  const bool was_excluded = c10::impl::tls_is_dispatch_key_included(kFollowKey) && c10::impl::tls_is_dispatch_key_excluded(kFollowKey);
  Followed() {
    if (was_excluded) c10::impl::tls_set_dispatch_key_excluded(kFollowKey, false);
  }
  ~Followed() {
    if (was_excluded) c10::impl::tls_set_dispatch_key_excluded(kFollowKey, true);
  }
};

void dispatch(const VTable* self, const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  Followed followed;
  original(self, handle, stack);
}

// Where a virtual function's address is in its class's table (Itanium C++ ABI, 2.3 and 2.5.2).
size_t slot_of_dispatch() {
  auto member = &VTable::dispatch;
  ptrdiff_t words[2];
  static_assert(sizeof member == sizeof words);
  std::memcpy(words, &member, sizeof words);
  return static_cast<size_t>(words[0] - 1) / sizeof(void*);
}

}  // namespace

bool follow_python_handlers() {
  void* library = dlopen("libtorch_python.so", RTLD_NOLOAD | RTLD_LAZY);
  if (!library) return false;
  using Get = c10::impl::PyInterpreter* (*)();
  const auto get = reinterpret_cast<Get>(dlsym(library, "_Z16getPyInterpreterv"));
  dlclose(library);
  c10::impl::PyInterpreter* interpreter = get ? get() : nullptr;
  if (!interpreter) return false;
  // The object has no members but its pointer to the table: another table, with one entry changed, makes another object.
  constexpr size_t kBefore = 2, kEntries = 64;  // offset to top and type information; more entries than the class has
  const size_t slot = slot_of_dispatch();
  if (slot >= kEntries) return false;
  void* const* table;
  std::memcpy(&table, interpreter->vtable_, sizeof table);
  static auto* entries = new std::vector<void*>(kBefore + kEntries);
  std::memcpy(entries->data(), table - kBefore, (kBefore + slot + 1) * sizeof(void*));
  // Entries after it: as many as are code of the same library.
  Dl_info own, other;
  if (!dladdr(table[slot], &own)) return false;
  for (size_t i = slot + 1; i < kEntries && dladdr(table[i], &other) && other.dli_fbase == own.dli_fbase; i++) (*entries)[kBefore + i] = table[i];
  original = reinterpret_cast<Dispatch>(table[slot]);
  (*entries)[kBefore + slot] = reinterpret_cast<void*>(&dispatch);
  static void** object;
  object = entries->data() + kBefore;
  interpreter->vtable_ = reinterpret_cast<const VTable*>(&object);
  return true;
}

}  // namespace gpumem::tracer

#else

namespace gpumem::tracer {
bool follow_python_handlers() { return true; }
}  // namespace gpumem::tracer

#endif
