// SPDX-License-Identifier: Apache-2.0
// The arena of handles and the small zeroing allocator. Part of libgpumem_vgpu.so, preloaded into jobs.

#include "estimator/virtual_gpu/device/objects.h"

#include <string.h>
#include <sys/mman.h>

namespace gpumem::virtual_gpu {
namespace {

constexpr size_t kArenaSize = size_t{256} << 20;  // address space only: two million handles

struct Arena {
  Lock lock;
  char *base;
  size_t fresh;     // first byte never used
  char *free_list;  // slots given back, linked through their second word
};
constinit Arena arena = {};

// Blocks of allocate_zeroed: a header of 16 bytes, then the block. Powers of two up to 64 KiB are recycled by class.
constexpr int kClasses = 17;
constexpr size_t kChunkSize = size_t{1} << 20;
struct Heap {
  Lock lock;
  char *chunk;
  size_t left;
  void *free_lists[kClasses];
};
constinit Heap heap = {};

struct BlockHeader {
  uint64_t size_class;   // kClasses: a mapping of its own
  uint64_t mapped_bytes;
};

void *map_pages(size_t bytes) {
  void *address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return address == MAP_FAILED ? nullptr : address;
}

}  // namespace

void *new_object(uint32_t kind) {
  Locked locked(arena.lock);
  if (arena.base == nullptr) {
    char *base = static_cast<char *>(map_pages(kArenaSize));
    if (base == nullptr) return nullptr;
    __atomic_store_n(&arena.base, base, __ATOMIC_RELEASE);
  }
  char *slot = arena.free_list;
  if (slot != nullptr) {
    memcpy(&arena.free_list, slot + 8, sizeof(char *));
    memset(slot, 0, kObjectSize);
  } else {
    if (arena.fresh + kObjectSize > kArenaSize) return nullptr;
    slot = arena.base + arena.fresh;
    __atomic_store_n(&arena.fresh, arena.fresh + kObjectSize, __ATOMIC_RELAXED);
  }
  __atomic_store_n(reinterpret_cast<uint32_t *>(slot), kind, __ATOMIC_RELAXED);
  return slot;
}

bool was_object(const void *pointer) {
  const char *slot = static_cast<const char *>(pointer);
  const char *base = __atomic_load_n(&arena.base, __ATOMIC_ACQUIRE);
  if (base == nullptr || slot < base || slot >= base + __atomic_load_n(&arena.fresh, __ATOMIC_RELAXED)) return false;
  return static_cast<size_t>(slot - base) % kObjectSize == 0;
}

void *find_object(const void *pointer, uint32_t kind) {
  if (!was_object(pointer)) return nullptr;
  const char *slot = static_cast<const char *>(pointer);
  return __atomic_load_n(reinterpret_cast<const uint32_t *>(slot), __ATOMIC_RELAXED) == kind ? const_cast<char *>(slot) : nullptr;
}

void delete_object(void *object) {
  if (object == nullptr) return;
  Locked locked(arena.lock);
  char *slot = static_cast<char *>(object);
  __atomic_store_n(reinterpret_cast<uint32_t *>(slot), kFreeObject, __ATOMIC_RELAXED);
  memcpy(slot + 8, &arena.free_list, sizeof(char *));
  arena.free_list = slot;
}

Handle *new_handle(uint32_t kind) {
  static_assert(sizeof(Handle) <= kObjectSize, "a handle must fit a slot");
  Handle *handle = static_cast<Handle *>(new_object(kind));
  if (handle != nullptr) handle->device = current_device();
  return handle;
}

Handle *find_handle(const void *pointer, uint32_t kind) { return static_cast<Handle *>(find_object(pointer, kind)); }

void delete_handle(Handle *handle) { delete_object(handle); }

void *allocate_zeroed(size_t bytes) {
  const size_t whole = bytes + sizeof(BlockHeader);
  int size_class = 6;
  while (size_class < kClasses && (size_t{1} << size_class) < whole) ++size_class;
  if (size_class >= kClasses) {
    BlockHeader *header = static_cast<BlockHeader *>(map_pages(whole));
    if (header == nullptr) return nullptr;
    *header = {kClasses, whole};
    return header + 1;
  }
  const size_t size = size_t{1} << size_class;
  Locked locked(heap.lock);
  void *block = heap.free_lists[size_class];
  if (block != nullptr) {
    memcpy(&heap.free_lists[size_class], block, sizeof(void *));
    memset(block, 0, size);
  } else {
    if (heap.left < size) {
      heap.chunk = static_cast<char *>(map_pages(kChunkSize));
      heap.left = heap.chunk == nullptr ? 0 : kChunkSize;
      if (heap.chunk == nullptr) return nullptr;
    }
    block = heap.chunk;
    heap.chunk += size;
    heap.left -= size;
  }
  BlockHeader *header = static_cast<BlockHeader *>(block);
  header->size_class = static_cast<uint64_t>(size_class);
  return header + 1;
}

void release_zeroed(void *pointer) {
  if (pointer == nullptr) return;
  BlockHeader *header = static_cast<BlockHeader *>(pointer) - 1;
  if (header->size_class >= kClasses) {
    munmap(header, header->mapped_bytes);
    return;
  }
  const uint64_t size_class = header->size_class;
  Locked locked(heap.lock);
  memcpy(header, &heap.free_lists[size_class], sizeof(void *));
  heap.free_lists[size_class] = header;
}

}  // namespace gpumem::virtual_gpu
