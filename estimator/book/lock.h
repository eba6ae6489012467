// SPDX-License-Identifier: Apache-2.0
// A process-local lock on one word that needs no C++ runtime and no libpthread, and is free again in a forked child.
// Used by the book and by the preloaded libraries.
//
// The word is 0 when free, else the holder's fork generation and two bits (held, contended). A child that called
// forked() treats any lock of an older generation as free: its holder is a thread of the parent.
#pragma once

#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace gpumem::book {

inline uint32_t fork_generation = 1;

inline void forked() { __atomic_add_fetch(&fork_generation, 1, __ATOMIC_RELAXED); }

inline void lock_word(uint32_t *word) {
  const uint32_t generation = __atomic_load_n(&fork_generation, __ATOMIC_RELAXED) << 2;
  uint32_t seen = 0;
  if (__atomic_compare_exchange_n(word, &seen, generation | 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) return;
  for (;;) {
    if (seen == 0 || (seen & ~3u) != generation) {
      // Marked contended, since others may sleep: one needless wake at worst.
      if (__atomic_compare_exchange_n(word, &seen, generation | 3, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) return;
      continue;
    }
    if (!(seen & 2) && !__atomic_compare_exchange_n(word, &seen, seen | 2, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
      continue;
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen | 2, nullptr, nullptr, 0);
    seen = __atomic_load_n(word, __ATOMIC_RELAXED);
  }
}

inline void unlock_word(uint32_t *word) {
  if (__atomic_exchange_n(word, 0, __ATOMIC_RELEASE) & 2)
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

}  // namespace gpumem::book
