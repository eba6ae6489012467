// SPDX-License-Identifier: Apache-2.0
// Memory pools. Part of libgpumem_vgpu.so, preloaded into jobs.

#include "estimator/virtual_gpu/device/pools.h"

#include <string.h>

#include "estimator/virtual_gpu/device/contents.h"
#include "estimator/virtual_gpu/device/objects.h"
#include "estimator/virtual_gpu/device/record_lines.h"

namespace gpumem::virtual_gpu {

struct Block {
  Block *next;        // by address
  size_t offset, size;
  uint32_t taken;
};

struct Segment {
  Segment *next;
  Pool *pool;
  uintptr_t start;
  size_t size;
  Block *blocks;
};

namespace {

constexpr size_t kUnit = 512;
constexpr size_t kSegmentUnit = size_t{32} << 20;

struct Pools {
  Lock lock;
  Pool *defaults[book::kMaxDevices];
  Pool *current[book::kMaxDevices];
  Pool *host;
  Pool *all[64];
  int count;
  uint32_t idle_segments;  // any free segment at all: makes trim_all_pools cheap
};
constinit Pools pools = {};

Pool *create_locked(int device, bool is_default) {
  if (pools.count == 64) return nullptr;
  Pool *pool = make<Pool>(kPoolObject);
  if (pool == nullptr) return nullptr;
  pool->device = device;
  pool->is_default = is_default;
  for (uint64_t &flag : pool->reuse_flags) flag = 1;
  pools.all[pools.count++] = pool;
  return pool;
}

RangeKind kind_of(const Pool *pool) { return pool->device >= 0 ? RangeKind::pool : RangeKind::host_pool; }

Segment *new_segment(Pool *pool, size_t bytes) {
  if (pool->device >= 0 &&
      book::charge(&state.book, book_device(pool->device), bytes, book::Charge::allocation) != book::Status::ok)
    return nullptr;
  Segment *segment = static_cast<Segment *>(allocate_zeroed(sizeof(Segment)));
  Block *block = static_cast<Block *>(allocate_zeroed(sizeof(Block)));
  void *address = segment == nullptr || block == nullptr ? nullptr : map_address_space(bytes);
  const Range range{reinterpret_cast<uintptr_t>(address), bytes, bytes, bytes, segment, 0,
                    static_cast<int16_t>(pool->device), kind_of(pool), 0};
  if (address == nullptr || !insert_range(range)) {
    if (address != nullptr) unmap_address_space(address, bytes);
    release_zeroed(segment);
    release_zeroed(block);
    if (pool->device >= 0) discharge(pool->device, bytes);
    return nullptr;
  }
  if (pool->device >= 0) record_taken(pool->device, bytes, range.start);
  block->size = bytes;
  segment->pool = pool;
  segment->start = range.start;
  segment->size = bytes;
  segment->blocks = block;
  segment->next = pool->segments;
  pool->segments = segment;
  pool->reserved += bytes;
  if (pool->reserved > pool->reserved_high) pool->reserved_high = pool->reserved;
  return segment;
}

void trim_locked(Pool *pool, uint64_t keep) {
  for (Segment **link = &pool->segments; *link != nullptr && pool->reserved > keep;) {
    Segment *segment = *link;
    if (segment->blocks->taken || segment->blocks->next != nullptr) {
      link = &segment->next;
      continue;
    }
    *link = segment->next;
    pool->reserved -= segment->size;
    remove_range(segment->start, kind_of(pool));
    if (pool->device >= 0) record_returned(pool->device, segment->size, segment->start);
    unmap_address_space(reinterpret_cast<void *>(segment->start), segment->size);
    if (pool->device >= 0) discharge(pool->device, segment->size);
    release_zeroed(segment->blocks);
    release_zeroed(segment);
  }
}

Block *best_fit(Pool *pool, size_t size, Segment **owner) {
  Block *best = nullptr;
  for (Segment *segment = pool->segments; segment != nullptr; segment = segment->next) {
    for (Block *block = segment->blocks; block != nullptr; block = block->next) {
      if (block->taken || block->size < size || (best != nullptr && best->size <= block->size)) continue;
      best = block;
      *owner = segment;
    }
  }
  return best;
}

}  // namespace

Pool *default_pool(int device) {
  Locked locked(pools.lock);
  if (pools.defaults[device] == nullptr) pools.defaults[device] = create_locked(device, true);
  return pools.defaults[device];
}

Pool *current_pool(int device) {
  Pool *pool = __atomic_load_n(&pools.current[device], __ATOMIC_RELAXED);
  return pool != nullptr ? pool : default_pool(device);
}

Error set_current_pool(int device, Pool *pool) {
  if (pool->device != device || pool->imported) return cuda::kInvalidValue;
  __atomic_store_n(&pools.current[device], pool, __ATOMIC_RELAXED);
  return cuda::kSuccess;
}

Pool *create_pool(int device) {
  Locked locked(pools.lock);
  return create_locked(device, false);
}

Pool *host_pool() {
  Locked locked(pools.lock);
  if (pools.host == nullptr) pools.host = create_locked(-1, true);
  return pools.host;
}

Error create_pool_at(const cuda::MemoryPoolProperties &properties, void **pool) {
  const cuda::MemoryLocation &location = properties.location;
  const bool device = location.type == cuda::kLocationDevice;
  if (!device && location.type != cuda::kLocationHost && location.type != cuda::kLocationNuma && location.type != cuda::kLocationNumaCurrent)
    return cuda::kInvalidValue;
  if (device && (location.id < 0 || location.id >= state.visible_count)) return cuda::kInvalidDevice;
  if ((properties.handleTypes & ~kFileDescriptorHandle) != 0) return cuda::kNotSupported;
  Pool *made = create_pool(device ? location.id : -1);
  if (made == nullptr) return cuda::kOperatingSystem;
  made->handle_types = properties.handleTypes;
  *pool = made;
  return cuda::kSuccess;
}

Pool *find_pool(const void *handle) { return find<Pool>(handle, kPoolObject); }

Error destroy_pool(Pool *pool) {
  Locked locked(pools.lock);
  if (pool->is_default) return cuda::kInvalidValue;
  trim_locked(pool, 0);
  for (int p = 0; p < pools.count; ++p) {
    if (pools.all[p] != pool) continue;
    pools.all[p] = pools.all[--pools.count];
    break;
  }
  for (Pool *&current : pools.current)
    if (current == pool) __atomic_store_n(&current, static_cast<Pool *>(nullptr), __ATOMIC_RELAXED);
  if (pool->segments == nullptr) delete_object(pool);  // else its blocks still refer to it
  return cuda::kSuccess;
}

Error allocate_in_pool(Pool *pool, size_t bytes, void **pointer) {
  *pointer = nullptr;
  if (pool->imported) return cuda::kInvalidValue;
  if (bytes == 0) return cuda::kSuccess;
  if (bytes > SIZE_MAX / 2) return cuda::kOutOfMemory;
  const size_t size = (bytes + kUnit - 1) / kUnit * kUnit;
  Locked locked(pools.lock);
  Segment *segment = nullptr;
  Block *block = best_fit(pool, size, &segment);
  if (block == nullptr) {
    segment = new_segment(pool, (size + kSegmentUnit - 1) / kSegmentUnit * kSegmentUnit);
    if (segment == nullptr) {
      for (int p = 0; p < pools.count; ++p)
        if (pools.all[p]->device == pool->device) trim_locked(pools.all[p], 0);
      segment = new_segment(pool, (size + kGranularity - 1) / kGranularity * kGranularity);
    }
    if (segment == nullptr) return cuda::kOutOfMemory;
    block = segment->blocks;
  }
  if (block->size > size) {
    Block *rest = static_cast<Block *>(allocate_zeroed(sizeof(Block)));
    if (rest != nullptr) {
      rest->offset = block->offset + size;
      rest->size = block->size - size;
      rest->next = block->next;
      block->next = rest;
      block->size = size;
    }
  }
  block->taken = 1;
  pool->used += block->size;
  if (pool->used > pool->used_high) pool->used_high = pool->used;
  *pointer = reinterpret_cast<void *>(segment->start + block->offset);
  return cuda::kSuccess;
}

Error free_in_pool(void *pointer) {
  if (pointer == nullptr) return cuda::kSuccess;
  const Range range = find_range(pointer);
  if (range.kind != RangeKind::pool && range.kind != RangeKind::host_pool) return cuda::kInvalidValue;
  Locked locked(pools.lock);
  Segment *segment = static_cast<Segment *>(range.owner);
  const size_t offset = reinterpret_cast<uintptr_t>(pointer) - segment->start;
  Block *before = nullptr, *block = segment->blocks;
  while (block != nullptr && block->offset != offset) {
    before = block;
    block = block->next;
  }
  if (block == nullptr || !block->taken) return cuda::kInvalidValue;
  forget_contents(pointer, block->size);
  block->taken = 0;
  segment->pool->used -= block->size;
  if (block->next != nullptr && !block->next->taken) {
    Block *next = block->next;
    block->size += next->size;
    block->next = next->next;
    release_zeroed(next);
  }
  if (before != nullptr && !before->taken) {
    before->size += block->size;
    before->next = block->next;
    release_zeroed(block);
  }
  if (!segment->blocks->taken && segment->blocks->next == nullptr) __atomic_store_n(&pools.idle_segments, 1u, __ATOMIC_RELAXED);
  return cuda::kSuccess;
}

Error free_queued(void *pointer) {
  const RangeKind kind = find_range(pointer).kind;
  return kind == RangeKind::pool || kind == RangeKind::host_pool ? free_in_pool(pointer) : free_device(pointer);
}

Pool *pool_of(const Range &range) {
  if (range.kind != RangeKind::pool && range.kind != RangeKind::host_pool) return nullptr;
  return static_cast<Segment *>(range.owner)->pool;
}

size_t block_size(const Range &range, const void *pointer) {
  if (pool_of(range) == nullptr) return 0;
  Locked locked(pools.lock);
  const size_t offset = reinterpret_cast<uintptr_t>(pointer) - range.start;
  const Block *block = static_cast<Segment *>(range.owner)->blocks;
  while (block != nullptr && block->offset != offset) block = block->next;
  return block != nullptr && block->taken ? block->size : 0;
}

void trim_pool(Pool *pool, uint64_t keep) {
  Locked locked(pools.lock);
  trim_locked(pool, keep);
}

void trim_all_pools() {
  if (!__atomic_load_n(&pools.idle_segments, __ATOMIC_RELAXED)) return;
  Locked locked(pools.lock);
  __atomic_store_n(&pools.idle_segments, 0u, __ATOMIC_RELAXED);
  for (int p = 0; p < pools.count; ++p) trim_locked(pools.all[p], pools.all[p]->release_threshold);
}

// Numbers of cudaMemPoolAttr; the reuse flags are ints, the rest 64-bit.
Error get_pool_attribute(Pool *pool, int attribute, void *value) {
  Locked locked(pools.lock);
  if (attribute >= 1 && attribute <= 3) {
    const int flag = static_cast<int>(pool->reuse_flags[attribute - 1]);
    memcpy(value, &flag, sizeof(flag));
    return cuda::kSuccess;
  }
  uint64_t number = 0;
  switch (attribute) {
    case 4: number = pool->release_threshold; break;
    case 5: number = pool->reserved; break;
    case 6: number = pool->reserved_high; break;
    case 7: number = pool->used; break;
    case 8: number = pool->used_high; break;
    default: return cuda::kInvalidValue;
  }
  memcpy(value, &number, sizeof(number));
  return cuda::kSuccess;
}

Error set_pool_attribute(Pool *pool, int attribute, const void *value) {
  Locked locked(pools.lock);
  if (attribute >= 1 && attribute <= 3) {
    int flag;
    memcpy(&flag, value, sizeof(flag));
    pool->reuse_flags[attribute - 1] = static_cast<uint64_t>(flag);
    return cuda::kSuccess;
  }
  uint64_t number;
  memcpy(&number, value, sizeof(number));
  switch (attribute) {
    case 4: pool->release_threshold = number; return cuda::kSuccess;
    case 6: pool->reserved_high = pool->reserved; return cuda::kSuccess;  // a high-water mark can only be reset
    case 8: pool->used_high = pool->used; return cuda::kSuccess;
    default: return cuda::kInvalidValue;
  }
}

}  // namespace gpumem::virtual_gpu
