// SPDX-License-Identifier: Apache-2.0
// CUDA runtime reached through a library's handle: dlsym(dlopen("libcudart.so.12"), "cudaMalloc") as ctypes, cffi and Python
// packages do it. Part of libgpumem_vgpu.so, preloaded into jobs.
//
// Note [Look-ups by handle]
// Preloading answers references by name; a handle names one library, the real runtime, which would look for a driver and fail.
// So dlsym is ours: a name that begins with "cuda", where there is a virtual GPU, is our function for the generation of
// the library that the handle names. Everything else goes to the real dlsym by a jump, which leaves the caller's address
// on the stack: by it dlsym knows what RTLD_NEXT and RTLD_DEFAULT mean.

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "estimator/virtual_gpu/runtime/runtime.h"

extern "C" {
__attribute__((visibility("hidden"))) void *gpumem_real_dlsym;
__attribute__((visibility("hidden"))) void *gpumem_look_up(void *handle, const char *name);
void *gpumem_dlvsym(void *, const char *, const char *);
int gpumem_dlinfo(void *, int, void *);
}
#if defined(__x86_64__)
#define FIRST_GLIBC "GLIBC_2.2.5"
__asm__(".symver gpumem_dlvsym,dlvsym@GLIBC_2.2.5");
__asm__(".symver gpumem_dlinfo,dlinfo@GLIBC_2.3.3");
__asm__(
    ".text\n.globl dlsym\n.type dlsym,@function\n.p2align 4\n"
    "dlsym:\n"
    "  push %rdi\n  push %rsi\n  sub $8,%rsp\n"
    "  call gpumem_look_up\n"
    "  add $8,%rsp\n  pop %rsi\n  pop %rdi\n"
    "  test %rax,%rax\n  jnz 1f\n"
    "  jmp *gpumem_real_dlsym(%rip)\n"
    "1: ret\n"
    ".size dlsym,.-dlsym\n");
#elif defined(__aarch64__)
#define FIRST_GLIBC "GLIBC_2.17"
__asm__(".symver gpumem_dlvsym,dlvsym@GLIBC_2.17");
__asm__(".symver gpumem_dlinfo,dlinfo@GLIBC_2.17");
__asm__(
    ".text\n.globl dlsym\n.type dlsym,%function\n.p2align 4\n"
    "dlsym:\n"
    "  stp x29,x30,[sp,#-32]!\n  stp x0,x1,[sp,#16]\n"
    "  bl gpumem_look_up\n"
    "  mov x9,x0\n  ldp x0,x1,[sp,#16]\n  ldp x29,x30,[sp],#32\n"
    "  cbnz x9,1f\n"
    "  adrp x10,gpumem_real_dlsym\n  ldr x10,[x10,:lo12:gpumem_real_dlsym]\n  br x10\n"
    "1: mov x0,x9\n  ret\n"
    ".size dlsym,.-dlsym\n");
#else
#error "name the first glibc of this architecture here"
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

void *gpumem_look_up(void *handle, const char *name) {
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
