// SPDX-License-Identifier: Apache-2.0
// The allocator model: what is given back to the device and when, and events of other streams. See allocator.h.
#include <algorithm>

#include "estimator/allocator/internal.h"

namespace gpumem::allocator {

void Allocator::release_block(Block* block) {
  ++stats_.device_frees;
  log(Action::segment_free, block->stream, block->address, block->size, block->pool);
  driver_.release(block->address, block->size);
  total_bytes_ -= block->size;
  stats_.segments.decrease(1);
  stats_.reserved_bytes.decrease(block->size);
  block->pool->free.erase(block->key());
  delete_block(block);
}

// Blocks that have not been used for longer than the average go, until memory is below the threshold.
void Allocator::collect_garbage() {
  const auto threshold = static_cast<std::uint64_t>(config_.garbage_collection_threshold * static_cast<double>(*allowed_bytes_));
  if (total_bytes_ <= threshold) return;
  const std::uint64_t target = total_bytes_ - threshold;
  std::uint64_t reclaimed = 0, ages = 0;
  int candidates = 0;
  Pool& pool = *large_;
  const auto age_of = [&](const Block* block) { return static_cast<std::uint64_t>(static_cast<int>(pool.searches - block->searches_at_insertion)); };
  for (auto at = pool.free.begin(); !pool.free.at_end(at); pool.free.advance(at)) {
    if (pool.free.block(at)->split()) continue;
    ages += age_of(pool.free.block(at));
    ++candidates;
  }
  for (bool freed = true; reclaimed < target && freed && candidates > 0;) {
    const double average = static_cast<double>(ages) / candidates;
    freed = false;
    std::vector<Block*> old;
    for (auto at = pool.free.begin(); !pool.free.at_end(at); pool.free.advance(at)) {
      Block* block = pool.free.block(at);
      if (!block->split() && block->segment == nullptr && static_cast<double>(age_of(block)) >= average) old.push_back(block);
    }
    for (Block* block : old) {
      freed = true;
      reclaimed += block->size;
      ages -= age_of(block);
      --candidates;
      release_block(block);
    }
  }
}

// Oversize blocks (max_split_size) of the request's stream: one that is large enough, else the largest until it is enough.
bool Allocator::release_oversize(const Search& search) {
  if (config_.max_split_bytes == kNoLimit) return false;
  Pool& pool = *search.pool;
  const std::uint64_t size = std::max(search.size, config_.max_split_bytes);
  auto at = pool.free.lower_bound({search.stream, size, 0, 0});
  if (!pool.free.at_end(at) && pool.free.key(at).stream == search.stream && pool.free.block(at)->segment == nullptr) {
    release_block(pool.free.block(at));
    return true;
  }
  if (pool.free.empty() || pool.free.at_begin(at)) return false;
  std::vector<Block*> chosen;
  std::uint64_t released = 0;
  pool.free.retreat(at);
  for (bool first = false; !first && released < size && pool.free.key(at).size >= config_.max_split_bytes && pool.free.key(at).stream == search.stream;) {
    const auto current = at;
    first = pool.free.at_begin(at);
    if (!first) pool.free.retreat(at);
    if (pool.free.block(current)->segment != nullptr) continue;
    released += pool.free.key(current).size;  // 2.6 reads it from freed memory, and may crash there
    chosen.push_back(pool.free.block(current));
  }
  for (Block* block : chosen) release_block(block);
  return released >= size;
}

void Allocator::release_blocks(Pool& pool) {
  std::vector<Block*> whole, expandable;
  for (auto at = pool.free.begin(); !pool.free.at_end(at); pool.free.advance(at)) {
    Block* block = pool.free.block(at);
    if (block->segment != nullptr) expandable.push_back(block);
    else if (!block->split()) whole.push_back(block);
  }
  for (Block* block : whole) release_block(block);
  for (Block* block : expandable) {
    unmap_block(block);
    if (!block->split()) release_segment(block);
  }
}

void Allocator::release_cached() {
  wait_for_events();
  release_blocks(*large_);
  release_blocks(*small_);
  for (auto& [id, pool] : private_pools_) {
    if (!pool->released) continue;
    release_blocks(pool->small);
    release_blocks(pool->large);
  }
}

void Allocator::empty_cache() {
  if (captures_ == 0) release_cached();
}

void Allocator::insert_events(Block* block) {
  for (const std::uint64_t stream : block->streams) {
    ++block->waiting;
    pending_[stream].push_back({driver_.record_event(stream), block});
  }
  block->streams.clear();
}

void Allocator::process_events() {
  // What was freed in a capture waits for the streams that used it outside of captures.
  for (Block* block : deferred_) {
    std::erase_if(block->streams, [&](std::uint64_t stream) {
      return std::find(block->capture_streams.begin(), block->capture_streams.end(), stream) != block->capture_streams.end();
    });
    block->capture_streams.clear();
    insert_events(block);
    if (block->waiting == 0) complete_free(block);
  }
  deferred_.clear();
  for (auto stream = pending_.begin(); stream != pending_.end();) {
    auto& queue = stream->second;
    while (!queue.empty() && driver_.event_happened(queue.front().event)) {
      Block* block = queue.front().block;
      queue.pop_front();
      if (--block->waiting == 0) complete_free(block);
    }
    stream = queue.empty() ? pending_.erase(stream) : std::next(stream);
  }
}

void Allocator::wait_for_events() {
  process_events();
  for (auto& [stream, queue] : pending_) {
    for (const Pending& pending : queue) {
      if (--pending.block->waiting == 0) complete_free(pending.block);
    }
  }
  pending_.clear();
  std::vector<Held> held;
  held.swap(held_);
  for (const Held& each : held) {
    each.block->waiting = 0;
    complete_free(each.block);
  }
}

}  // namespace gpumem::allocator
