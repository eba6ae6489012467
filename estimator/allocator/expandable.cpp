// SPDX-License-Identifier: Apache-2.0
// The allocator model: expandable segments. See allocator.h.
//
// One growing segment a stream and pool: address space for 9/8 of the device, mapped in pieces of 2 MiB (small pool) or
// large_segment_size (large pool). Under pressure whole free pieces are unmapped; gaps are filled from the lowest address.
#include <algorithm>

#include "estimator/allocator/internal.h"

namespace gpumem::allocator {

Block* Allocator::find_expandable(Search& search) {
  Pool& pool = *search.pool;
  const auto has_room = [&](const Block* block) {
    std::uint64_t bytes = 0;
    for (; bytes < search.size && block != nullptr && block->reusable(); block = block->next) bytes += block->size;
    return bytes >= search.size;
  };
  for (auto at = pool.unmapped.lower_bound({search.stream, 0, 0, 0}); !pool.unmapped.at_end(at) && pool.unmapped.key(at).stream == search.stream;
       pool.unmapped.advance(at)) {
    Block* block = pool.unmapped.block(at);
    if (block->previous != nullptr && block->previous->reusable()) block = block->previous;  // free memory right before it
    if (has_room(block)) return block;
  }
  auto segment = std::make_unique<Segment>();
  segment->piece = pool.small ? kSmallSegment : config_.large_segment_bytes;
  const std::uint64_t space = driver_.total_bytes() + driver_.total_bytes() / 8;
  segment->pieces = (space + segment->piece - 1) / segment->piece;
  segment->address = driver_.reserve(segment->size());
  Block* block = new_block(search.stream, segment->size(), &pool, segment->address);
  block->mapped = false;
  block->segment = segment.get();
  block->order = next_order();
  pool.unmapped.insert(block->unmapped_key(), block);
  expandable_.push_back(std::move(segment));
  return block;
}

bool Allocator::map_block(Block* block, std::uint64_t size) {
  const std::uint64_t piece = block->segment->piece;
  const std::uint64_t pieces = (size + piece - 1) / piece;
  for (std::uint64_t made = 0; made < pieces; ++made) {
    if (driver_.create_physical(piece)) continue;
    while (made-- > 0) driver_.release_physical(piece);
    return false;
  }
  const std::uint64_t address = block->address, mapped = pieces * piece;
  Pool& pool = *block->pool;
  pool.unmapped.erase(block->unmapped_key());
  block->mapped = true;
  if (mapped < block->size) {
    Block* rest = new_block(block->stream, block->size - mapped, &pool, block->address + mapped);
    rest->mapped = false;
    link_after(rest, block);
    pool.unmapped.insert(rest->unmapped_key(), rest);
    block->size = mapped;
  }
  merge(block, block->previous, pool);
  merge(block, block->next, pool);
  insert_free(block);
  total_bytes_ += mapped;
  stats_.reserved_bytes.increase(mapped);
  ++stats_.device_allocations;
  log(Action::segment_map, block->stream, address, mapped, &pool);
  return true;
}

Block* Allocator::allocate_expandable(Search& search) {
  Block* block = find_expandable(search);
  if (!block->mapped && !map_block(block, std::min(block->size, search.size))) return nullptr;
  while (block->size < search.size) {  // free memory, then unmapped space
    Block* next = block->next;
    if (next == nullptr) return nullptr;  // more than the address space: with a real device memory has run out before
    if (!map_block(next, std::min(search.size - block->size, next->size))) return nullptr;
    block = next;
  }
  search.pool->free.erase(block->key());
  return block;
}

void Allocator::unmap_block(Block* block) {
  const std::uint64_t piece = block->segment->piece, base = block->segment->address;
  const std::uint64_t first = (block->address - base + piece - 1) / piece;
  const std::uint64_t last = (block->address + block->size - base) / piece;
  if (first >= last) return;
  const std::uint64_t address = base + first * piece, bytes = (last - first) * piece;
  for (std::uint64_t i = first; i < last; ++i) driver_.release_physical(piece);
  Pool& pool = *block->pool;
  pool.free.erase(block->key());
  if (const std::uint64_t before = address - block->address; before > 0) {
    Block* rest = new_block(block->stream, before, &pool, block->address);
    link_before(rest, block);
    insert_free(rest);
  }
  if (const std::uint64_t after = block->address + block->size - (address + bytes); after > 0) {
    Block* rest = new_block(block->stream, after, &pool, address + bytes);
    link_after(rest, block);
    insert_free(rest);
  }
  block->address = address;
  block->size = bytes;
  block->mapped = false;
  merge(block, block->previous, pool);
  merge(block, block->next, pool);
  pool.unmapped.insert(block->unmapped_key(), block);
  total_bytes_ -= bytes;
  stats_.reserved_bytes.decrease(bytes);
  ++stats_.device_frees;
  log(Action::segment_unmap, block->stream, address, bytes, &pool);
}

// All of it is unmapped again.
void Allocator::release_segment(Block* block) {
  block->pool->unmapped.erase(block->unmapped_key());
  const auto found = std::find_if(expandable_.begin(), expandable_.end(), [&](const auto& segment) { return segment.get() == block->segment; });
  driver_.unreserve((*found)->address, (*found)->size());
  expandable_.erase(found);
  delete_block(block);
}

}  // namespace gpumem::allocator
