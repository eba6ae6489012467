// SPDX-License-Identifier: Apache-2.0
// Device memory, pinned memory and address reservations of one process. Part of libgpumem_vgpu.so.
//
// Note [Address space]
// Virtual device memory is host address space: private anonymous mappings without commit and without huge pages. It
// reads as zero until written, and touching it costs only the touched pages. What is charged to the book follows the
// driver: 2 MiB granularity; requests below 1 MiB share 2 MiB slabs in 512-byte units. A reservation that the host
// refuses (RLIMIT_AS, strict overcommit) is noted in the book as a host failure and answered with
// cudaErrorOperatingSystem, never as out of device memory.
//
// Note [Managed memory]
// cudaMallocManaged counts wholly on the device that is current at allocation, as far as there is room then (real managed
// memory moves there at first use, which cannot be seen without running kernels); without room it stays on the host.
//
// One table of ranges, sorted by address, under one lock; found ranges are returned by value. Units: bytes.
#pragma once

#include "estimator/virtual_gpu/device/state.h"

namespace gpumem::virtual_gpu {

constexpr size_t kGranularity = size_t{2} << 20;

enum class RangeKind : uint8_t {
  none, device, slab, pool, pinned, registered, managed, reservation, mapped, imported, host_pool, external,
};

struct Range {
  uintptr_t start;
  size_t size;         // as the program sees it
  size_t map_size;     // what is mapped from start; 0 when the memory is not ours
  uint64_t charged;    // bytes in the book
  void *owner;         // slab, pool or physical object, by kind; of external memory the address that the program got
  uint32_t flags;      // of the allocating call
  int16_t device;      // the program's ordinal
  RangeKind kind;
  uint8_t reserved;
  uintptr_t end() const { return start + size; }
};

inline bool on_device(RangeKind kind) {
  return kind == RangeKind::device || kind == RangeKind::slab || kind == RangeKind::pool || kind == RangeKind::mapped ||
         kind == RangeKind::imported || kind == RangeKind::external || kind == RangeKind::managed;
}

// Address space of whole granules; nullptr with the failure noted in the book.
void *map_address_space(size_t bytes);
void unmap_address_space(void *address, size_t bytes);
// Whether device memory was ever given out there (or next to it).
bool was_in_arena(uintptr_t address);
constexpr size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// cudaMalloc and cudaFree.
Error allocate_device(int device, size_t bytes, void **pointer);
Error free_device(void *pointer);
Error allocate_managed(int device, size_t bytes, void **pointer);
// cudaHostAlloc, cudaHostRegister and their ends.
Error allocate_pinned(size_t bytes, unsigned flags, void **pointer);
Error free_pinned(void *pointer);
Error register_host(void *pointer, size_t bytes, unsigned flags);
Error unregister_host(void *pointer);

// The range that holds the address (a mapped part before the reservation around it), or kind none. For memory in a
// slab, start and size are those of the slab: slab_block() narrows it to the allocation.
Range find_range(const void *pointer);
Range slab_block(const Range &slab, const void *pointer);

// Whether `bytes` from the pointer on may be read or written: kInvalidValue where they reach beyond device or pinned memory, where a
// device pointer dangles, or, with `device`, where it is no memory that a device reaches. Host memory is not looked at.
Error check_access(const void *pointer, size_t bytes, bool device);

// For the other rooms of device/: the table itself.
bool insert_range(const Range &range);
Range remove_range(uintptr_t start, RangeKind kind);  // kind none when there is no such range
Error host_failure(const char *what, uint64_t bytes); // notes it and returns kOperatingSystem

// What cudaMemGetInfo says.
Error memory_info(int device, size_t *free_bytes, size_t *total_bytes);

}  // namespace gpumem::virtual_gpu
