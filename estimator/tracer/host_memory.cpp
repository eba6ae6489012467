// SPDX-License-Identifier: Apache-2.0
// See host_memory.h.

#include "host_memory.h"

#include "storage_states.h"

#include <c10/core/CPUAllocator.h>

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace gpumem::tracer {
namespace {

bool is_plain_heap(const c10::DataPtr& memory) { return memory.get_deleter() == c10::GetDefaultCPUAllocator()->raw_deleter(); }

}  // namespace

bool make_zero(const at::Tensor& t) {
  static const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  if (!is_plain_heap(storage_of(t)->data_ptr())) return false;
  char* begin = bytes_of(t) + t.storage_offset() * t.itemsize();
  char* end = begin + t.nbytes();
  char* first_page = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(begin) + page - 1) & ~(page - 1));
  char* last_page = reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(end) & ~(page - 1));
  if (last_page <= first_page || madvise(first_page, last_page - first_page, MADV_DONTNEED) != 0) return false;
  std::memset(begin, 0, first_page - begin);
  std::memset(last_page, 0, end - last_page);
  return true;
}

bool is_file_mapped(const c10::DataPtr& storage, const void* address) {
  if (is_plain_heap(storage)) return false;
  FILE* maps = std::fopen("/proc/self/maps", "re");
  if (!maps) return false;
  unsigned long start = 0, end = 0, inode = 0;
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  char flags[8], line[4096 + 128];
  bool found = false;
  while (std::fgets(line, sizeof line, maps)) {
    if (std::sscanf(line, "%lx-%lx %7s %*x %*s %lu", &start, &end, flags, &inode) != 4 || wanted >= end) continue;
    found = wanted >= start && inode != 0 && flags[3] == 'p';
    break;
  }
  std::fclose(maps);
  return found;
}

bool reads_as_zero(const at::Tensor& t) {
  constexpr size_t kSamples = 64;
  const char* begin = bytes_of(t) + t.storage_offset() * t.itemsize();
  const size_t step = t.nbytes() / kSamples;
  for (size_t s = 0; s < kSamples; s++) {
    uint64_t words[8];
    std::memcpy(words, begin + s * step, sizeof words);
    for (uint64_t word : words)
      if (word) return false;
  }
  return true;
}

}  // namespace gpumem::tracer
