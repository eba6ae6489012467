// SPDX-License-Identifier: Apache-2.0
// dlopen and dlsym at the versions that glibc has had since 2.2.5: a preload must resolve under every glibc of a job.
// Part of libgpumem_vgpu.so, preloaded into jobs.

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "estimator/virtual_gpu/internal.h"

#if defined(__x86_64__)
extern "C" {
void *gpumem_dlopen(const char *, int);
int gpumem_dladdr(const void *, Dl_info *);
}
__asm__(".symver gpumem_dlopen,dlopen@GLIBC_2.2.5");
__asm__(".symver gpumem_dladdr,dladdr@GLIBC_2.2.5");
#elif defined(__aarch64__)
extern "C" {
void *gpumem_dlopen(const char *, int);
int gpumem_dladdr(const void *, Dl_info *);
}
__asm__(".symver gpumem_dlopen,dlopen@GLIBC_2.17");
__asm__(".symver gpumem_dladdr,dladdr@GLIBC_2.17");
#else
#error "name the first glibc of this architecture here"
#endif

namespace gpumem::virtual_gpu {

void *open_library(const char *name, int flags) { return gpumem_dlopen(name, flags); }

// dlsym is ours: Note [Look-ups by handle] in runtime/lookup.cpp.
void *find_symbol(void *handle, const char *name) { return dlsym(handle, name); }

void library_of(const void *address, char *name, size_t size) {
  Dl_info info;
  const char *path = gpumem_dladdr(address, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "?";
  const char *slash = strrchr(path, '/');
  snprintf(name, size, "%s", slash != nullptr ? slash + 1 : path);
}

}  // namespace gpumem::virtual_gpu
