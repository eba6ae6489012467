// SPDX-License-Identifier: Apache-2.0
// What the rooms of the allocator model share. Part of estimator/allocator; for nobody else.
#pragma once

#include <memory>
#include <vector>

#include "estimator/allocator/allocator.h"

namespace gpumem::allocator {

inline constexpr std::uint64_t kLeastBlock = 512;
inline constexpr std::uint64_t kSmallRequest = 1u << 20;   // the largest that is small
inline constexpr std::uint64_t kSmallSegment = 2u << 20;
inline constexpr std::uint64_t kLeastLarge = 10u << 20;    // requests from here on have segments of their own size …
inline constexpr std::uint64_t kRoundLarge = 2u << 20;     // … rounded up to this

// Free blocks of one pool, all streams.
struct Pool {
  Pool(bool is_small, PrivatePool* private_owner) : small(is_small), owner(private_owner) {}
  OrderedBlocks free, unmapped;   // unmapped: by stream and address (size 0 in the key)
  bool small;
  PrivatePool* owner;
  std::int64_t searches = 0;      // counted while there is garbage to collect: ages of blocks
};

struct PrivatePool {
  explicit PrivatePool(PoolId pool) : id(pool), small(true, this), large(false, this) {}
  PoolId id;
  int users = 0;
  bool released = false;          // nobody uses it any more: its memory may be given back
  Pool small, large;
};

// An expandable segment: address space, mapped in pieces of one size.
struct Segment {
  std::uint64_t address = 0, piece = 0, pieces = 0;
  std::uint64_t size() const { return piece * pieces; }
};

struct Block {
  std::uint64_t stream = 0, size = 0, requested = 0, address = 0;
  Pool* pool = nullptr;
  Block *previous = nullptr, *next = nullptr;   // neighbours in the segment
  Segment* segment = nullptr;                   // expandable; nullptr: an ordinary one
  std::uint64_t order = 0;                      // see BlockKey
  std::int64_t searches_at_insertion = 0;
  std::uint32_t waiting = 0;                    // events that have not happened yet
  bool allocated = false, mapped = true;
  bool in_capture = false;                      // a stream used it while a capture was under way
  std::vector<std::uint64_t> streams;           // others than its own that used it
  std::vector<std::uint64_t> capture_streams;   // of them, those recorded in captures

  bool split() const { return previous != nullptr || next != nullptr; }
  bool reusable() const { return !allocated && waiting == 0 && streams.empty(); }
  BlockKey key() const { return {stream, size, order, address}; }
  BlockKey unmapped_key() const { return {stream, 0, 0, address}; }
};

// `added` becomes the neighbour of `block` in its segment: on the low side, or on the high one.
inline void link_before(Block* added, Block* block) {
  added->segment = block->segment;
  added->order = block->order;
  added->previous = block->previous;
  added->next = block;
  if (added->previous != nullptr) added->previous->next = added;
  block->previous = added;
}

inline void link_after(Block* added, Block* block) {
  added->segment = block->segment;
  added->order = block->order;
  added->previous = block;
  added->next = block->next;
  if (added->next != nullptr) added->next->previous = added;
  block->next = added;
}

struct Allocator::Search {
  std::uint64_t size;          // of the block
  std::uint64_t stream;
  Pool* pool;
  std::uint64_t segment_size;
  Block* block = nullptr;
};

inline PoolId id_of(const Pool* pool) { return pool->owner != nullptr ? pool->owner->id : 0; }

}  // namespace gpumem::allocator
