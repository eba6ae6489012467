// SPDX-License-Identifier: Apache-2.0
// Finds the function that an intercepted call is passed on to. Runs in a job's processes.
//
// The next library is usually in the global scope (RTLD_NEXT). PyTorch's wheels load the runtime with local scope when
// an extension module pulls it in: then it is asked for by its SONAME among what is loaded already, never loaded anew.
#include <dlfcn.h>
#include <string.h>

#include "estimator/meter/meter.h"

// glibc 2.34 moved it into libc under a new version; the old one is in every glibc (doc/HACKING.md, rule 7).
#if defined(__x86_64__)
__asm__(".symver dlopen, dlopen@GLIBC_2.2.5");
#elif defined(__aarch64__)
__asm__(".symver dlopen, dlopen@GLIBC_2.17");
#endif

namespace gpumem::meter {
namespace {

constexpr int kMaxFunctions = 128;
struct Known {
  const char *name;
  void *function;
};
// Written under no lock: two threads that race find the same function and write the same value.
Known known[kMaxFunctions];

bool is_driver(const char *name) { return name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z'; }

void *search_loaded(const char *name) {
  static constexpr const char *kRuntimes[] = {"libcudart.so.12", "libcudart.so.13", "libcudart.so.11.0"};
  static constexpr const char *kDrivers[] = {"libcuda.so.1"};
  static constexpr const char *kCudnns[] = {"libcudnn.so.9", "libcudnn.so.8"};
  const bool cudnn = strncmp(name, "cudnn", 5) == 0;
  const char *const *libraries = cudnn ? kCudnns : is_driver(name) ? kDrivers : kRuntimes;
  const size_t count = cudnn ? 2 : is_driver(name) ? 1 : 3;
  for (size_t i = 0; i < count; ++i) {
    void *library = dlopen(libraries[i], RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) continue;
    if (void *function = find_in(library, name)) return function;
  }
  return nullptr;
}

Known *slot_of(const char *name) {
  for (auto &entry : known) {
    if (entry.name == nullptr || strcmp(entry.name, name) == 0) return &entry;
  }
  return nullptr;
}

}  // namespace

void *next_function(const char *name) {
  Known *entry = slot_of(name);
  if (entry != nullptr && entry->name != nullptr) return entry->function;
  void *function = find_in(RTLD_NEXT, name);
  if (function == nullptr) function = search_loaded(name);
  // What is not there yet may be loaded later: only what was found is kept.
  if (function != nullptr) set_next_function(name, function);
  return function;
}

void set_next_function(const char *name, void *function) {
  Known *entry = slot_of(name);
  if (entry == nullptr || entry->name != nullptr) return;
  entry->function = function;
  __atomic_store_n(&entry->name, name, __ATOMIC_RELEASE);
}

}  // namespace gpumem::meter
