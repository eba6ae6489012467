// SPDX-License-Identifier: Apache-2.0
// What test programs of parts share: a check that ends the program, and the part that the command line names. Libc only.
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern "C" {
int cudaMemGetInfo(size_t *, size_t *);
int cudaPeekAtLastError();
}

#define CHECK(condition)                                                                                                  \
  do {                                                                                                                    \
    if (!(condition)) {                                                                                                   \
      fprintf(stderr, "%s:%d: %s is false (last error %d)\n", __FILE__, __LINE__, #condition, cudaPeekAtLastError());     \
      exit(1);                                                                                                            \
    }                                                                                                                     \
  } while (0)

inline constexpr size_t kMiB = size_t{1} << 20;

// Of device 0 or the current one, contexts included.
inline size_t used() {
  size_t free_bytes = 0, total = 0;
  CHECK(cudaMemGetInfo(&free_bytes, &total) == 0);
  return total - free_bytes;
}

struct Part {
  const char *name;
  void (*run)();
};

// The program's exit status: 0 where the part came to its end, 2 where there is none of that name.
template <size_t N>
int run_part(const Part (&parts)[N], int count, char **words) {
  for (const Part &part : parts)
    if (count == 2 && strcmp(words[1], part.name) == 0) return part.run(), 0;
  fprintf(stderr, "%s: no part of that name\n", words[0]);
  return 2;
}
