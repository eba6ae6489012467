// SPDX-License-Identifier: Apache-2.0
// Where device memory lies in the process's address space. Part of libgpumem_vgpu.so, preloaded into jobs. See Note [Address space] in memory.h.

#include <sys/mman.h>

#include "estimator/virtual_gpu/device/contents.h"
#include "estimator/virtual_gpu/device/memory.h"
#include "estimator/virtual_gpu/device/shared.h"

namespace gpumem::virtual_gpu {

// Note [Order of addresses]
// PyTorch's allocator prefers the lower address among free blocks of one size, so the order in which addresses are given out
// decides which segment is filled, and so the peak. It must not depend on holes that the process's other mappings happen
// to leave (the same script gave 9.1, 9.6 or 10.1 GiB): device memory comes from a range of its own, from the top down, as mmap
// itself gives it out. The real driver's direction is not documented and not yet measured; of the two, this one is nearer to
// the stored runs of the debug half (tests/accuracy).
namespace {
constexpr uintptr_t kArenaTop = 0x7e0000000000, kArenaBottom = 0x600000000000;  // below the libraries, above the program
constexpr int kFixedNoReplace = 0x100000;  // MAP_FIXED_NOREPLACE, Linux 4.17; older kernels take the address as a wish
uintptr_t next_address = kArenaTop;
uintptr_t lowest_address = kArenaTop;  // the lowest that was ever given out

// An address range of its own, or 0 where the arena cannot be had (sanitizers, small address spaces).
uintptr_t map_in_arena(size_t bytes, int flags) {
#ifdef __SANITIZE_THREAD__
  return 0;  // it has its own view of the address space
#endif
  const size_t step = round_up(bytes, kGranularity);
  for (int attempt = 0; attempt < 16; ++attempt) {
    uintptr_t wish = __atomic_sub_fetch(&next_address, step, __ATOMIC_RELAXED);
    if (wish < kArenaBottom || wish > kArenaTop) {
      __atomic_store_n(&next_address, kArenaTop, __ATOMIC_RELAXED);  // all used once: what was given back is used again
      continue;
    }
    void *address = mmap(reinterpret_cast<void *>(wish), bytes, PROT_READ | PROT_WRITE, flags | kFixedNoReplace, -1, 0);
    if (address == reinterpret_cast<void *>(wish)) {
      uintptr_t lowest = __atomic_load_n(&lowest_address, __ATOMIC_RELAXED);
      while (wish < lowest && !__atomic_compare_exchange_n(&lowest_address, &lowest, wish, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
      }
      return wish;
    }
    if (address != MAP_FAILED) munmap(address, bytes);
  }
  return 0;
}
}  // namespace

bool was_in_arena(uintptr_t address) {
  return address < kArenaTop && address >= __atomic_load_n(&lowest_address, __ATOMIC_RELAXED);
}

void *map_address_space(size_t bytes) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  uintptr_t start = map_in_arena(bytes, flags);
  if (start == 0) {
    const size_t whole = bytes + kGranularity;
    void *address = mmap(nullptr, whole, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (address == MAP_FAILED) {
      host_failure("address space (mmap)", bytes);
      return nullptr;
    }
    const uintptr_t base = reinterpret_cast<uintptr_t>(address);
    start = round_up(base, kGranularity);
    if (start > base) munmap(address, start - base);
    if (base + whole > start + bytes) munmap(reinterpret_cast<void *>(start + bytes), base + whole - start - bytes);
  }
  madvise(reinterpret_cast<void *>(start), bytes, MADV_NOHUGEPAGE);
  madvise(reinterpret_cast<void *>(start), bytes, MADV_DONTDUMP);
  return reinterpret_cast<void *>(start);
}

void unmap_address_space(void *address, size_t bytes) {
  drop_contents(address, bytes);
  forget_shared(reinterpret_cast<uintptr_t>(address));
  munmap(address, bytes);
}

}  // namespace gpumem::virtual_gpu
