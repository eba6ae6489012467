// SPDX-License-Identifier: Apache-2.0
// CUDA runtime reached through a library's handle: dlsym(dlopen("libcudart.so.12"), "cudaMalloc") as ctypes, cffi and Python
// packages do it. Part of libgpumem_vgpu.so, preloaded into jobs.
//
// Note [Look-ups by handle]
// Preloading answers references by name; a handle names one library, the real runtime, which would look for a driver and fail.
// So dlsym is ours (cuda_interface/dlsym.h): a name that begins with "cuda", where there is a virtual GPU, is our function for
// the generation of the library that the handle names. Everything else goes to the real dlsym.

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "estimator/cuda_interface/dlsym.h"
#include "estimator/virtual_gpu/runtime/runtime.h"

extern "C" int gpumem_dlinfo(void *, int, void *);
#if defined(__x86_64__)
__asm__(".symver gpumem_dlinfo,dlinfo@GLIBC_2.3.3");
#else
__asm__(".symver gpumem_dlinfo,dlinfo@GLIBC_2.17");
#endif

namespace {

// "libcudart.so.12", "libcudart-9335f6a2.so.11.0" → the version under which our functions of that generation are exported.
const char *generation_of(const char *path) {
  const char *slash = strrchr(path, '/');
  const char *name = slash != nullptr ? slash + 1 : path;
  const char *suffix = strstr(name, ".so.");
  if (strncmp(name, "libcudart", 9) != 0 || suffix == nullptr) return nullptr;
  switch (atoi(suffix + 4)) {
    case 11: return "libcudart.so.11.0";
    case 12: return "libcudart.so.12";
    default: return "libcudart.so.13";
  }
}

// The generation of the first runtime that the process has loaded.
int look_at(struct dl_phdr_info *library, size_t, void *to) {
  const char **generation = static_cast<const char **>(to);
  if (library->dlpi_name != nullptr) *generation = generation_of(library->dlpi_name);
  return *generation != nullptr;
}

void *own_function(const char *name, const char *generation) {
  static void *self;
  if (__atomic_load_n(&self, __ATOMIC_RELAXED) == nullptr)
    __atomic_store_n(&self, open_library("libgpumem_vgpu.so", RTLD_LAZY | RTLD_NOLOAD), __ATOMIC_RELAXED);
  if (self == nullptr) return nullptr;
  if (void *versioned = gpumem_dlvsym(self, name, generation)) return versioned;
  return find_symbol(self, name);
}

}  // namespace

void *gpumem::virtual_gpu::next_function(const char *name, const char *version) { return gpumem_dlvsym(RTLD_NEXT, name, version); }

void *gpumem_look_up(void *handle, const char *name, const void *) {
  if (__atomic_load_n(&gpumem_real_dlsym, __ATOMIC_RELAXED) == nullptr)
    __atomic_store_n(&gpumem_real_dlsym, gpumem_dlvsym(RTLD_NEXT, "dlsym", FIRST_GLIBC), __ATOMIC_RELAXED);
  // Every process passes here with every name: nothing else may happen before this line.
  if (name == nullptr || name[0] != 'c' || strncmp(name, "cuda", 4) != 0 || handle == RTLD_NEXT || !open_book()) return nullptr;
  struct link_map *library = nullptr;
  if (handle != RTLD_DEFAULT && (gpumem_dlinfo(handle, RTLD_DI_LINKMAP, &library) != 0 || library->l_name == nullptr)) return nullptr;
  const char *generation = nullptr;
  if (library == nullptr || library->l_name[0] == '\0')  // the program's own scope
    dl_iterate_phdr(look_at, &generation);
  else
    generation = generation_of(library->l_name);
  return generation != nullptr ? own_function(name, generation) : nullptr;
}
