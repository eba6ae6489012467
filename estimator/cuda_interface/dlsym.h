// SPDX-License-Identifier: Apache-2.0
// dlsym in front of libc's: the entry, for one file of each preloaded library that has one. Part of those libraries, in jobs.
//
// Including this defines and exports `dlsym`. It calls gpumem_look_up(handle, name, caller), which the including file defines:
// what that returns is the answer; for nullptr the real dlsym (gpumem_real_dlsym, which gpumem_look_up sets at its first call) is
// entered by a jump, which leaves the caller's address where dlsym looks for it: by it, it knows what RTLD_NEXT and RTLD_DEFAULT mean.
// Every process passes there with every name: gpumem_look_up must refuse what is not its own at once.
#pragma once

extern "C" {
__attribute__((visibility("hidden"))) void *gpumem_real_dlsym;
__attribute__((visibility("hidden"))) void *gpumem_look_up(void *handle, const char *name, const void *caller);
void *gpumem_dlvsym(void *, const char *, const char *);
}
// glibc 2.34 moved these into libc under a new version; the old one is in every glibc (doc/HACKING.md, rule 7).
#if defined(__x86_64__)
#define FIRST_GLIBC "GLIBC_2.2.5"
__asm__(".symver gpumem_dlvsym,dlvsym@GLIBC_2.2.5");
__asm__(
    ".text\n.globl dlsym\n.type dlsym,@function\n.p2align 4\n"
    "dlsym:\n"
    "  push %rdi\n  push %rsi\n  sub $8,%rsp\n"
    "  mov 24(%rsp),%rdx\n"
    "  call gpumem_look_up\n"
    "  add $8,%rsp\n  pop %rsi\n  pop %rdi\n"
    "  test %rax,%rax\n  jnz 1f\n"
    "  jmp *gpumem_real_dlsym(%rip)\n"
    "1: ret\n"
    ".size dlsym,.-dlsym\n");
#elif defined(__aarch64__)
#define FIRST_GLIBC "GLIBC_2.17"
__asm__(".symver gpumem_dlvsym,dlvsym@GLIBC_2.17");
__asm__(
    ".text\n.globl dlsym\n.type dlsym,%function\n.p2align 4\n"
    "dlsym:\n"
    "  stp x29,x30,[sp,#-32]!\n  stp x0,x1,[sp,#16]\n"
    "  mov x2,x30\n"
    "  bl gpumem_look_up\n"
    "  mov x9,x0\n  ldp x0,x1,[sp,#16]\n  ldp x29,x30,[sp],#32\n"
    "  cbnz x9,1f\n"
    "  adrp x10,gpumem_real_dlsym\n  ldr x10,[x10,:lo12:gpumem_real_dlsym]\n  br x10\n"
    "1: mov x0,x9\n  ret\n"
    ".size dlsym,.-dlsym\n");
#else
#error "name the first glibc of this architecture here"
#endif
