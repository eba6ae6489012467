// SPDX-License-Identifier: Apache-2.0
// PyTorch's caching allocator as a model: requests, best fit, split and merge. See allocator.h.
#include "estimator/allocator/allocator.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "estimator/allocator/internal.h"

namespace gpumem::allocator {
namespace {

// The next of `divisions` equal steps between two powers of 2.
std::uint64_t next_division(std::uint64_t size, std::uint64_t divisions) {
  if (std::has_single_bit(size)) return size;
  const std::uint64_t floor = std::bit_floor(size);
  const std::uint64_t step = floor >> (63 - std::countl_zero(divisions));
  if (step == 0) return floor << 1;
  const std::uint64_t below = size & ~(step - 1);
  return below == size ? size : below + step;
}

std::uint64_t divisions_for(const Config& config, std::uint64_t size) {
  const int index = 63 - std::countl_zero(size) - 20;  // the first interval is 1 MiB's
  return config.roundup_power2_divisions[static_cast<std::size_t>(std::clamp(index, 0, static_cast<int>(config.roundup_power2_divisions.size()) - 1))];
}

}  // namespace

Allocator::Allocator(const Config& config, Driver& driver)
    : config_(config), driver_(driver), small_(std::make_unique<Pool>(true, nullptr)), large_(std::make_unique<Pool>(false, nullptr)) {
  if (config_.memory_fraction < 1) set_memory_fraction(config_.memory_fraction);
}

Allocator::~Allocator() = default;

std::uint64_t Allocator::address_of(const Block* block) { return block->address; }
std::uint64_t Allocator::size_of(const Block* block) { return block->size; }
std::uint64_t Allocator::requested_of(const Block* block) { return block->requested; }

std::uint64_t Allocator::block_bytes(const Config& config, std::uint64_t requested) {
  if (requested < kLeastBlock) return kLeastBlock;
  const std::uint64_t divisions = divisions_for(config, requested);
  // One division: none since 2.4, before the very size that was asked for.
  if (divisions == 1 && requested > kLeastBlock && config.version < Version{2, 4}) return requested;
  if (divisions > 1 && requested > kLeastBlock * divisions) return next_division(requested, divisions);
  return (requested + kLeastBlock - 1) / kLeastBlock * kLeastBlock;
}

std::uint64_t Allocator::segment_bytes(const Config& config, std::uint64_t size) {
  if (size <= kSmallRequest) return kSmallSegment;
  if (size < kLeastLarge) return config.large_segment_bytes;
  return (size + kRoundLarge - 1) / kRoundLarge * kRoundLarge;
}

void Allocator::log(Action action, std::uint64_t stream, std::uint64_t address, std::uint64_t size, const Pool* pool) {
  if (events_ != nullptr) events_->push_back({action, stream, address, size, id_of(pool)});
}

Block* Allocator::new_block(std::uint64_t stream, std::uint64_t size, Pool* pool, std::uint64_t address) {
  Block* block;
  if (spare_.empty()) {
    block = &storage_.emplace_back();
  } else {
    block = spare_.back();
    spare_.pop_back();
    block->requested = 0;
    block->previous = block->next = nullptr;
    block->segment = nullptr;
    block->order = 0;
    block->waiting = 0;
    block->allocated = block->in_capture = false;
    block->mapped = true;
    block->streams.clear();
    block->capture_streams.clear();
  }
  block->stream = stream;
  block->size = size;
  block->pool = pool;
  block->address = address;
  return block;
}

void Allocator::delete_block(Block* block) { spare_.push_back(block); }

void Allocator::insert_free(Block* block) {
  block->searches_at_insertion = block->pool->searches;
  block->pool->free.insert(block->key(), block);
}

Pool& Allocator::pool_for(std::uint64_t size, PoolId pool) {
  if (pool != 0) {
    auto& owner = private_pools_[pool];
    if (!owner) owner = std::make_unique<PrivatePool>(pool);
    return size <= kSmallRequest ? owner->small : owner->large;
  }
  return size <= kSmallRequest ? *small_ : *large_;
}

bool Allocator::should_split(const Block& block, std::uint64_t size) const {
  if (!no_split_.empty() && no_split_.count(id_of(block.pool)) > 0) return false;
  const std::uint64_t rest = block.size - size;
  if (block.pool->small || config_.expandable_segments) return rest >= kLeastBlock;
  return size < config_.max_split_bytes && rest > kSmallRequest;
}

Block* Allocator::allocate(std::uint64_t bytes, std::uint64_t stream, PoolId pool_id) {
  if (captures_ == 0) process_events();
  const std::uint64_t size = block_bytes(config_, bytes);
  Search search{size, stream, &pool_for(size, pool_id), segment_bytes(config_, size)};
  bool found = find_free(search);
  if (!found) {
    if (allowed_bytes_ && config_.garbage_collection_threshold > 0) collect_garbage();
    found = allocate_segment(search, false) || from_overflow_pools(search) || (release_oversize(search) && allocate_segment(search, false));
    if (!found && captures_ == 0) {
      release_cached();
      found = allocate_segment(search, true);
    }
  }
  if (!found) {
    ++stats_.out_of_memory;
    log(Action::out_of_memory, stream, driver_.free_bytes(), size, search.pool);
    return nullptr;
  }
  return hand_out(search, bytes);
}

bool Allocator::find_free(Search& search) {
  Pool& pool = *search.pool;
  if (allowed_bytes_ && config_.garbage_collection_threshold > 0) ++pool.searches;
  auto at = pool.free.lower_bound({search.stream, search.size, 0, 0});
  const auto of_stream = [&](OrderedBlocks::Position p) { return !pool.free.at_end(p) && pool.free.key(p).stream == search.stream; };
  if (!of_stream(at)) return false;
  if (pool.free.block(at)->segment != nullptr) {
    if (config_.expandable_segments) {
      // A block that can grow counts as large as it can become: others are preferred.
      const auto could_be = [&](OrderedBlocks::Position p) {
        const Block* block = pool.free.block(p);
        return block->size + (block->next != nullptr && !block->next->mapped ? block->next->size : 0);
      };
      auto next = at;
      pool.free.advance(next);
      while (pool.free.block(at)->segment != nullptr && of_stream(next) && could_be(next) < could_be(at)) {
        at = next;
        pool.free.advance(next);
      }
    } else {  // they were switched off while the program ran
      do pool.free.advance(at);
      while (of_stream(at) && pool.free.block(at)->segment != nullptr);
      if (!of_stream(at)) return false;
    }
  }
  const std::uint64_t size = pool.free.key(at).size;
  if (search.size < config_.max_split_bytes && size >= config_.max_split_bytes) return false;
  if (search.size >= config_.max_split_bytes && size >= search.size + config_.max_non_split_rounding_bytes) return false;
  search.block = pool.free.block(at);
  pool.free.erase(at);
  return true;
}

bool Allocator::allocate_segment(Search& search, bool retry) {
  if (retry) ++stats_.retries;
  if (allowed_bytes_ && total_bytes_ + search.segment_size > *allowed_bytes_) return false;
  if (config_.expandable_segments) {
    search.block = allocate_expandable(search);
    return search.block != nullptr;
  }
  const std::uint64_t address = driver_.allocate(search.segment_size);
  if (address == 0) return false;
  total_bytes_ += search.segment_size;
  search.block = new_block(search.stream, search.segment_size, search.pool, address);
  search.block->order = next_order();
  stats_.segments.increase(1);
  stats_.reserved_bytes.increase(search.segment_size);
  ++stats_.device_allocations;
  log(Action::segment_allocate, search.stream, address, search.segment_size, search.pool);
  return true;
}

bool Allocator::from_overflow_pools(Search& search) {
  if (use_on_oom_.empty() || search.pool->owner != nullptr) return false;
  for (const PoolId id : use_on_oom_) {
    Search other = search;
    other.pool = &pool_for(search.size, id);
    if (find_free(other)) {
      search = other;
      return true;
    }
  }
  return false;
}

Block* Allocator::hand_out(Search& search, std::uint64_t requested) {
  Block* block = search.block;
  const bool was_split = block->split();
  if (should_split(*block, search.size)) {
    Block* rest = block;
    block = new_block(search.stream, search.size, search.pool, rest->address);
    link_before(block, rest);
    rest->address += search.size;
    rest->size -= search.size;
    insert_free(rest);
    if (block->segment == nullptr) {
      if (was_split) {
        stats_.inactive_split_bytes.decrease(block->size);
      } else {
        stats_.inactive_split_bytes.increase(rest->size);
        stats_.inactive_splits.increase(1);
      }
    }
  } else if (was_split && block->segment == nullptr) {
    stats_.inactive_split_bytes.decrease(block->size);
    stats_.inactive_splits.decrease(1);
  }
  block->allocated = true;
  block->requested = requested;
  log(Action::allocate, search.stream, block->address, requested, block->pool);
  stats_.allocations.increase(1);
  stats_.allocated_bytes.increase(block->size);
  stats_.active_bytes.increase(block->size);
  stats_.requested_bytes.increase(requested);
  return block;
}

void Allocator::begin_free(Block* block) {
  block->allocated = false;
  stats_.allocations.decrease(1);
  stats_.allocated_bytes.decrease(block->size);
  log(Action::free_requested, block->stream, block->address, block->requested, block->pool);
}

void Allocator::free(Block* block) {
  begin_free(block);
  if (block->streams.empty()) complete_free(block);
  else if (captures_ > 0) deferred_.push_back(block);
  else insert_events(block);
}

std::uint64_t Allocator::free_later(Block* block) {
  begin_free(block);
  block->waiting = 1;
  held_.push_back({next_ticket_, block});
  return next_ticket_++;
}

void Allocator::complete(std::uint64_t ticket) {
  const auto found = std::lower_bound(held_.begin(), held_.end(), ticket, [](const Held& held, std::uint64_t t) { return held.ticket < t; });
  if (found == held_.end() || found->ticket != ticket) return;
  Block* block = found->block;
  held_.erase(found);
  block->waiting = 0;
  complete_free(block);
}

void Allocator::complete_free(Block* block) {
  log(Action::free_completed, block->stream, block->address, block->requested, block->pool);
  const std::uint64_t size = block->size, requested = block->requested;
  Pool& pool = *block->pool;
  // Signed in effect: what merges takes away, the block itself may add again.
  std::uint64_t splits = 0, split_bytes = 0;
  for (Block* neighbour : {block->previous, block->next}) {
    const std::uint64_t merged = merge(block, neighbour, pool);
    if (merged == 0) continue;
    ++splits;
    split_bytes += merged;
  }
  insert_free(block);
  if (block->segment == nullptr) {
    stats_.inactive_splits.decrease(splits);
    stats_.inactive_split_bytes.decrease(split_bytes);
    if (block->split()) {
      stats_.inactive_splits.increase(1);
      stats_.inactive_split_bytes.increase(block->size);
    }
  }
  stats_.active_bytes.decrease(size);
  stats_.requested_bytes.decrease(requested);
}

// `other` becomes a part of `into` where both are free and alike. The bytes that came, or 0.
std::uint64_t Allocator::merge(Block* into, Block* other, Pool& pool) {
  if (other == nullptr || !other->reusable() || into->mapped != other->mapped) return 0;
  if (other->mapped) pool.free.erase(other->key());
  else pool.unmapped.erase(other->unmapped_key());
  if (into->previous == other) {
    into->address = other->address;
    into->previous = other->previous;
    if (into->previous != nullptr) into->previous->next = into;
  } else {
    into->next = other->next;
    if (into->next != nullptr) into->next->previous = into;
  }
  into->size += other->size;
  const std::uint64_t bytes = other->size;
  delete_block(other);
  return bytes;
}

void Allocator::record_stream(Block* block, std::uint64_t stream) {
  if (stream == block->stream) return;
  if (std::find(block->streams.begin(), block->streams.end(), stream) == block->streams.end()) block->streams.push_back(stream);
  if (captures_ > 0 && std::find(block->capture_streams.begin(), block->capture_streams.end(), stream) == block->capture_streams.end()) {
    block->capture_streams.push_back(stream);
  }
}

void Allocator::set_memory_fraction(double fraction) {
  allowed_bytes_ = static_cast<std::uint64_t>(fraction * static_cast<double>(driver_.total_bytes()));
}

void Allocator::use_pool(PoolId pool) {
  pool_for(0, pool);
  PrivatePool& used = *private_pools_[pool];
  ++used.users;
  used.released = false;
}

void Allocator::release_pool(PoolId pool) {
  const auto found = private_pools_.find(pool);
  if (found == private_pools_.end()) return;
  if (found->second->users > 0) --found->second->users;
  found->second->released = found->second->users == 0;
}

void Allocator::set_use_on_oom(PoolId pool, bool use) {
  if (use) use_on_oom_.insert(pool);
  else use_on_oom_.erase(pool);
}

}  // namespace gpumem::allocator
