// SPDX-License-Identifier: Apache-2.0
// Further names of functions that other files define: a jump each. Part of libgpumem_vgpu.so, preloaded into jobs.
// An alias of the compiler's needs its target in the same file; these targets are everywhere.

#if defined(__x86_64__)
#define JUMP "jmp "
#elif defined(__aarch64__)
#define JUMP "b "
#else
#error "name this architecture's jump here"
#endif

#define SAME(name, function)                     \
  __asm__(".text\n"                              \
          ".globl " #name "\n"                   \
          ".type " #name ", @function\n" #name   \
          ":\n\t" JUMP #function "\n"            \
          ".size " #name ", . - " #name "\n");
#include "estimator/cuda_interface/other_names.def"
