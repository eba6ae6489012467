// SPDX-License-Identifier: Apache-2.0
// Device, pinned and managed memory. Part of libgpumem_vgpu.so, preloaded into jobs. See Note [Address space] in memory.h.

#include "estimator/virtual_gpu/device/memory.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "estimator/virtual_gpu/device/contents.h"
#include "estimator/virtual_gpu/device/external.h"
#include "estimator/virtual_gpu/device/pools.h"
#include "estimator/virtual_gpu/device/record_lines.h"
#include "estimator/virtual_gpu/device/shared.h"
#include "estimator/virtual_gpu/device/streams.h"

namespace gpumem::virtual_gpu {
namespace {

struct Table {
  Lock lock;
  Range *ranges;
  size_t count, capacity;
};
constinit Table table = {};

// First range that begins after the address.
size_t upper_bound(uintptr_t address) {
  size_t low = 0, high = table.count;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (table.ranges[middle].start <= address)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

constexpr size_t kUnit = 512;                        // cudaMalloc's alignment
constexpr size_t kSlabUnits = kGranularity / kUnit;
constexpr size_t kLargestInSlab = size_t{1} << 20;

struct Slab {
  Slab *next;
  uintptr_t start;
  int device;
  uint32_t used_units;
  uint16_t units_at[kSlabUnits];  // length of the allocation that begins there
  uint8_t taken[kSlabUnits];
};
struct Slabs {
  Lock lock;
  Slab *first;
};
constinit Slabs slabs = {};

// First fit; kSlabUnits when there is no room.
size_t find_units(const Slab *slab, size_t units) {
  size_t run = 0;
  for (size_t u = 0; u < kSlabUnits; ++u) {
    run = slab->taken[u] ? 0 : run + 1;
    if (run == units) return u + 1 - units;
  }
  return kSlabUnits;
}

Error charge_book(int device, uint64_t bytes) {
  switch (book::charge(&state.book, book_device(device), bytes, book::Charge::allocation)) {
    case book::Status::ok: return cuda::kSuccess;
    case book::Status::out_of_memory: return cuda::kOutOfMemory;
    default: return host_failure("lock of the book", bytes);
  }
}

Error map_charged(int device, size_t bytes, RangeKind kind, void *owner, Range *made) {
  const Error error = charge_book(device, bytes);
  if (error != cuda::kSuccess) return error;
  void *address = map_address_space(bytes);
  *made = Range{reinterpret_cast<uintptr_t>(address), bytes, bytes, bytes, owner, 0, static_cast<int16_t>(device), kind, 0};
  if (address == nullptr || !insert_range(*made)) {
    if (address != nullptr) unmap_address_space(address, bytes);
    discharge(device, bytes);
    return cuda::kOperatingSystem;
  }
  record_taken(device, bytes, made->start);
  return cuda::kSuccess;
}

Error allocate_small(int device, size_t bytes, void **pointer) {
  const size_t units = round_up(bytes, kUnit) / kUnit;
  Locked locked(slabs.lock);
  Slab *slab = slabs.first;
  size_t at = kSlabUnits;
  for (; slab != nullptr; slab = slab->next) {
    if (slab->device != device || kSlabUnits - slab->used_units < units) continue;
    at = find_units(slab, units);
    if (at < kSlabUnits) break;
  }
  if (slab == nullptr) {
    slab = static_cast<Slab *>(allocate_zeroed(sizeof(Slab)));
    if (slab == nullptr) return host_failure("small host memory", sizeof(Slab));
    Range range;
    const Error error = map_charged(device, kGranularity, RangeKind::slab, slab, &range);
    if (error != cuda::kSuccess) {
      release_zeroed(slab);
      return error;
    }
    slab->start = range.start;
    slab->device = device;
    slab->next = slabs.first;
    slabs.first = slab;
    at = 0;
  }
  memset(slab->taken + at, 1, units);
  slab->units_at[at] = static_cast<uint16_t>(units);
  slab->used_units += static_cast<uint32_t>(units);
  *pointer = reinterpret_cast<void *>(slab->start + at * kUnit);
  return cuda::kSuccess;
}

Error free_small(const Range &range, void *pointer) {
  Locked locked(slabs.lock);
  Slab *slab = static_cast<Slab *>(range.owner);
  const size_t offset = reinterpret_cast<uintptr_t>(pointer) - slab->start;
  const size_t at = offset / kUnit;
  const size_t units = offset % kUnit == 0 ? slab->units_at[at] : 0;
  if (units == 0) return cuda::kInvalidValue;
  forget_contents(pointer, units * kUnit);  // the next owner reads zeros
  memset(slab->taken + at, 0, units);
  slab->units_at[at] = 0;
  slab->used_units -= static_cast<uint32_t>(units);
  if (slab->used_units > 0) return cuda::kSuccess;
  Slab **link = &slabs.first;
  while (*link != slab) link = &(*link)->next;
  *link = slab->next;
  remove_range(range.start, RangeKind::slab);
  record_returned(range.device, range.charged, range.start);
  unmap_address_space(reinterpret_cast<void *>(range.start), range.map_size);
  discharge(range.device, range.charged);
  release_zeroed(slab);
  return cuda::kSuccess;
}

}  // namespace

Error host_failure(const char *what, uint64_t bytes) {
  book::note_host_failure(&state.book, what, errno, bytes);
  return cuda::kOperatingSystem;
}

bool insert_range(const Range &range) {
  Locked locked(table.lock);
  if (table.count == table.capacity) {
    const size_t capacity = table.capacity == 0 ? 1024 : table.capacity * 2;
    Range *grown = static_cast<Range *>(allocate_zeroed(capacity * sizeof(Range)));
    if (grown == nullptr) return false;
    if (table.ranges != nullptr) memcpy(grown, table.ranges, table.count * sizeof(Range));
    release_zeroed(table.ranges);
    table.ranges = grown;
    table.capacity = capacity;
  }
  // A mapped part that begins where its reservation does comes after it: the later of equals is found first.
  const size_t at = upper_bound(range.start);
  memmove(table.ranges + at + 1, table.ranges + at, (table.count - at) * sizeof(Range));
  table.ranges[at] = range;
  ++table.count;
  return true;
}

Range remove_range(uintptr_t start, RangeKind kind) {
  Locked locked(table.lock);
  for (size_t at = upper_bound(start); at > 0 && table.ranges[at - 1].start == start; --at) {
    if (table.ranges[at - 1].kind != kind) continue;
    const Range found = table.ranges[at - 1];
    memmove(table.ranges + at - 1, table.ranges + at, (table.count - at) * sizeof(Range));
    --table.count;
    return found;
  }
  return Range{};
}

Range find_range(const void *pointer) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(pointer);
  Locked locked(table.lock);
  // Ranges do not overlap, except mapped parts inside reservations: the first hit backwards is the innermost.
  for (size_t at = upper_bound(address); at > 0; --at) {
    const Range &range = table.ranges[at - 1];
    if (address < range.end()) return range;
    if (range.kind != RangeKind::mapped) break;
  }
  return Range{};
}

Range slab_block(const Range &slab_range, const void *pointer) {
  Locked locked(slabs.lock);
  const Slab *slab = static_cast<const Slab *>(slab_range.owner);
  size_t at = (reinterpret_cast<uintptr_t>(pointer) - slab->start) / kUnit;
  while (at > 0 && slab->units_at[at] == 0) --at;
  Range block = slab_range;
  block.start = slab->start + at * kUnit;
  block.size = size_t{slab->units_at[at]} * kUnit;
  if (reinterpret_cast<uintptr_t>(pointer) >= block.end()) return Range{};
  return block;
}

Error check_access(const void *pointer, size_t bytes, bool device) {
  if (pointer == nullptr) return cuda::kInvalidValue;
  const uintptr_t start = reinterpret_cast<uintptr_t>(pointer);
  if (start + bytes < start) return cuda::kInvalidValue;
  Range range = find_range(pointer);
  if (range.kind == RangeKind::none) return device || was_in_arena(start) ? cuda::kInvalidValue : cuda::kSuccess;
  if (range.kind == RangeKind::reservation) return cuda::kInvalidValue;
  if (range.kind == RangeKind::slab) range = slab_block(range, pointer);
  if (range.kind == RangeKind::none) return cuda::kInvalidValue;
  if (range.kind == RangeKind::registered) return cuda::kSuccess;
  while (range.end() < start + bytes) {  // parts of an expandable segment are mapped one by one
    if (range.kind != RangeKind::mapped) return cuda::kInvalidValue;
    range = find_range(reinterpret_cast<void *>(range.end()));
    if (range.kind != RangeKind::mapped) return cuda::kInvalidValue;
  }
  return cuda::kSuccess;
}

Error allocate_device(int device, size_t bytes, void **pointer) {
  *pointer = nullptr;
  if (bytes == 0) return cuda::kSuccess;
  if (bytes > SIZE_MAX / 2) return cuda::kOutOfMemory;
  if (bytes < kLargestInSlab) return allocate_small(device, bytes, pointer);
  Range range;
  const Error error = map_charged(device, round_up(bytes, kGranularity), RangeKind::device, nullptr, &range);
  if (error == cuda::kSuccess) *pointer = reinterpret_cast<void *>(range.start);
  return error;
}

Error free_device(void *pointer) {
  if (pointer == nullptr) return cuda::kSuccess;
  const Range range = find_range(pointer);
  synchronize_device(-1);  // giving memory back waits for the device
  if (range.kind == RangeKind::slab) return free_small(range, pointer);
  if (range.kind == RangeKind::pool || range.kind == RangeKind::host_pool) return free_in_pool(pointer);
  if (range.kind == RangeKind::external) return unmap_external(pointer);
  if ((range.kind != RangeKind::device && range.kind != RangeKind::managed) ||
      range.start != reinterpret_cast<uintptr_t>(pointer) || remove_range(range.start, range.kind).kind == RangeKind::none)
    return cuda::kInvalidValue;
  if (range.charged != 0) record_returned(range.device, range.charged, range.start);
  unmap_address_space(pointer, range.map_size);
  discharge(range.device, range.charged);
  return cuda::kSuccess;
}

Error allocate_managed(int device, size_t bytes, void **pointer) {
  *pointer = nullptr;
  if (bytes == 0) return cuda::kInvalidValue;
  if (bytes > SIZE_MAX / 2) return cuda::kOutOfMemory;
  const size_t size = round_up(bytes, kGranularity);
  uint64_t free_bytes = 0, total_bytes = 0, charged = 0;
  if (book::available(&state.book, book_device(device), &free_bytes, &total_bytes) == book::Status::ok && size <= free_bytes &&
      charge_book(device, size) == cuda::kSuccess)
    charged = size;
  void *address = map_address_space(size);
  const Range range{reinterpret_cast<uintptr_t>(address), bytes, size, charged, nullptr, 0, static_cast<int16_t>(device),
                    RangeKind::managed, 0};
  if (address == nullptr || !insert_range(range)) {
    if (address != nullptr) unmap_address_space(address, size);
    if (charged != 0) discharge(device, charged);
    return cuda::kOperatingSystem;
  }
  if (charged != 0) record_taken(device, charged, range.start);
  *pointer = address;
  return cuda::kSuccess;
}

Error allocate_pinned(size_t bytes, unsigned flags, void **pointer) {
  *pointer = nullptr;
  if (bytes == 0) return cuda::kSuccess;
  if (bytes > SIZE_MAX / 2) return cuda::kInvalidValue;
  const size_t size = round_up(bytes, 4096);
  void *address = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) return host_failure("pinned memory (mmap)", bytes);
  const Range range{reinterpret_cast<uintptr_t>(address), bytes, size, 0, nullptr, flags,
                    static_cast<int16_t>(thread_state.device), RangeKind::pinned, 0};
  if (!insert_range(range)) {
    munmap(address, size);
    return host_failure("small host memory", bytes);
  }
  *pointer = address;
  return cuda::kSuccess;
}

Error free_pinned(void *pointer) {
  if (pointer == nullptr) return cuda::kSuccess;
  const Range range = remove_range(reinterpret_cast<uintptr_t>(pointer), RangeKind::pinned);
  if (range.kind == RangeKind::none) return cuda::kInvalidValue;
  munmap(pointer, range.map_size);
  return cuda::kSuccess;
}

Error register_host(void *pointer, size_t bytes, unsigned flags) {
  if (pointer == nullptr || bytes == 0) return cuda::kInvalidValue;
  const char *last = static_cast<const char *>(pointer) + bytes - 1;
  if (find_range(pointer).kind != RangeKind::none || find_range(last).kind != RangeKind::none)
    return cuda::kHostMemoryAlreadyRegistered;
  const Range range{reinterpret_cast<uintptr_t>(pointer), bytes, 0, 0, nullptr, flags,
                    static_cast<int16_t>(thread_state.device), RangeKind::registered, 0};
  return insert_range(range) ? cuda::kSuccess : host_failure("small host memory", bytes);
}

Error unregister_host(void *pointer) {
  const Range range = remove_range(reinterpret_cast<uintptr_t>(pointer), RangeKind::registered);
  return range.kind == RangeKind::none ? cuda::kHostMemoryNotRegistered : cuda::kSuccess;
}

Error memory_info(int device, size_t *free_bytes, size_t *total_bytes) {
  uint64_t available = 0, total = 0;
  if (book::available(&state.book, book_device(device), &available, &total) != book::Status::ok)
    return host_failure("lock of the book", 0);
  if (free_bytes != nullptr) *free_bytes = available < total ? available : total;
  if (total_bytes != nullptr) *total_bytes = total;
  return cuda::kSuccess;
}

void *allocate_device_memory(int device, size_t bytes) {
  void *pointer = nullptr;
  if (check_device(device) != cuda::kSuccess) return nullptr;
  return allocate_device(device, bytes, &pointer) == cuda::kSuccess ? pointer : nullptr;
}

bool free_device_memory(void *pointer) { return free_device(pointer) == cuda::kSuccess; }

bool find_device_memory(const void *pointer, int *device, size_t *bytes_to_end) {
  Range range = find_range(pointer);
  if (!on_device(range.kind)) return false;
  if (range.kind == RangeKind::slab) range = slab_block(range, pointer);
  if (device != nullptr) *device = range.device;
  if (bytes_to_end != nullptr) *bytes_to_end = range.end() - reinterpret_cast<uintptr_t>(pointer);
  return range.kind != RangeKind::none;
}

}  // namespace gpumem::virtual_gpu
