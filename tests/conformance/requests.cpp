// SPDX-License-Identifier: Apache-2.0
// What is asked of both allocators: random requests, or those of a recorded program. See comparison.h.
#include <c10/util/Exception.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <unordered_map>

#include "tests/conformance/comparison.h"

namespace conformance {

bool Comparison::allocate(uint64_t bytes, size_t stream, model::PoolId pool, Live* live) {
  choose_stream(stream);
  bool served = true;
  try {
    live->real = real::get()->allocate(bytes);
  } catch (const c10::OutOfMemoryError&) {
    served = false;
  }
  live->block = allocator_->allocate(bytes, handle(stream), pool);
  if (served != (live->block != nullptr) || (served && reinterpret_cast<uint64_t>(live->real.get()) != model::Allocator::address_of(live->block))) {
    fprintf(stderr, "difference at request %" PRIu64 ": %" PRIu64 " bytes on stream %zu: PyTorch gives %p, the model %" PRIx64 "\n", requests_, bytes, stream,
            served ? live->real.get() : nullptr, live->block ? model::Allocator::address_of(live->block) : 0);
    compare(true);
    exit(1);
  }
  if (!served) ++refused_;
  return served;
}

uint64_t Comparison::random_size() {
  const uint64_t kind = below(100);
  const bool small = options_.sizes == "small", large = options_.sizes == "large";
  if (kind < (small ? 85 : large ? 20 : 50)) return 1 + below(uint64_t{1} << (1 + below(20)));
  if (kind < (small ? 97 : large ? 50 : 75)) return kMiB + 1 + below(9 * kMiB);
  if (kind < 90) return 10 * kMiB + below(40 * kMiB);
  return below(large ? 600 * kMiB : 200 * kMiB) + 1;
}

void Comparison::advance_clock() {
  const uint64_t stream = handle(1 + below(3));
  const uint64_t by = below(4);
  auto& clock = real_clocks[stream];
  clock.happened = std::min(clock.recorded, clock.happened + by);
  model_clocks[stream].happened = clock.happened;
}

void Comparison::toggle_pool() {
#if TORCH_AT_LEAST(3)
  if (pool_ != 0) {
    real::get()->endAllocateToPool(0, {0, pool_ + 1000});
    if (kPoolsCountAsCaptures) allocator_->end_capture();
    kept_pools_.push_back(std::exchange(pool_, 0));
  } else if (kept_pools_.empty() || options_.keep_pools || below(2) == 0) {
    pool_ = next_pool_++;
    pool_stream_ = below(4);
    pool_numbers[pool_ + 1000] = pool_;
    const auto stream = streams_[pool_stream_].stream();
    real::get()->beginAllocateToPool(0, {0, pool_ + 1000}, [stream](cudaStream_t s) { return s == stream; });
    allocator_->use_pool(pool_);
    if (kPoolsCountAsCaptures) allocator_->begin_capture();
  } else {
    const size_t at = below(kept_pools_.size());
    real::get()->releasePool(0, {0, kept_pools_[at] + 1000});
    allocator_->release_pool(kept_pools_[at]);
    kept_pools_.erase(kept_pools_.begin() + static_cast<std::ptrdiff_t>(at));
  }
#endif
}

void Comparison::random_request() {
  const uint64_t what = below(1000);
  // The more is held the likelier is a free; now and then all of it.
  const bool full = live_bytes_ > capacity_ - capacity_ / 8;
  if (what < 2 && pool_ == 0) {
    real::emptyCache();
    allocator_->empty_cache();
  } else if (what < 3) {
    for (auto& live : live_) let_go(live);
    live_.clear();
    live_bytes_ = 0;
  } else if (what < 6 && options_.pools) {
    toggle_pool();
  } else if (what < 60 && options_.streams) {
    advance_clock();
  } else if (!live_.empty() && what < (full ? 760 : live_bytes_ > capacity_ / 2 ? 540 : 470)) {
    const size_t at = below(3) == 0 ? live_.size() - 1 : below(live_.size());
    Live& live = live_[at];
    if (options_.streams && below(5) == 0) {
      for (uint64_t i = 0; i <= below(2); ++i) {
        const size_t other = 1 + below(3);
        real::get()->recordStream(live.real, streams_[other]);
        allocator_->record_stream(live.block, handle(other));
      }
    }
    live_bytes_ -= model::Allocator::requested_of(live.block);
    let_go(live);
    if (at + 1 != live_.size()) std::swap(live, live_.back());
    live_.pop_back();
  } else {
    const uint64_t bytes = below(4) != 0 ? favourites_[below(favourites_.size())] : random_size();
    const size_t stream = options_.streams && below(4) == 0 ? below(4) : 0;
    Live live{};
    if (allocate(bytes, stream, pool_ != 0 && stream == pool_stream_ ? pool_ : 0, &live)) {
      live_bytes_ += bytes;
      live_.push_back(std::move(live));
    } else if (below(2) == 0) {  // a program that catches it lets go of much
      for (size_t n = live_.size() / 2; n > 0; --n) {
        live_bytes_ -= model::Allocator::requested_of(live_.back().block);
        let_go(live_.back());
        live_.pop_back();
      }
    }
  }
}

// What a recorded program asked for, to both.
void Comparison::replay_record() {
  auto file = gpumem::record::read_events(options_.record);
  if (!file) {
    fprintf(stderr, "%s\n", file.error().message.c_str());
    exit(2);
  }
  for (const auto& [device, trace] : model::traces_of(*file)) {
    std::unordered_map<uint64_t, size_t> stream_numbers{{0, 0}};
    std::vector<Live> slots(trace.slots);
    for (const auto& request : trace.requests) {
      ++requests_;
      const size_t stream = std::min<size_t>(stream_numbers.emplace(request.stream, stream_numbers.size()).first->second, 2);
      switch (request.kind) {
        case Kind::allocate: {
          Live live{};
          if (allocate(request.bytes, stream, 0, &live)) slots[request.slot] = std::move(live);
          break;
        }
        case Kind::free_later:
          if (slots[request.slot].block) {
            real::get()->recordStream(slots[request.slot].real, streams_[3]);
            allocator_->record_stream(slots[request.slot].block, handle(3));
            let_go(slots[request.slot]);
          }
          break;
        case Kind::free:
          if (slots[request.slot].block) let_go(slots[request.slot]);
          break;
        case Kind::complete:
          real_clocks[handle(3)].happened = std::min(real_clocks[handle(3)].recorded, real_clocks[handle(3)].happened + 1);
          model_clocks[handle(3)].happened = real_clocks[handle(3)].happened;
          break;
        case Kind::empty_cache:
          real::emptyCache();
          allocator_->empty_cache();
          break;
        default: break;
      }
      if (!compare(false)) exit(1);
    }
    for (auto& slot : slots) {
      if (slot.block) let_go(slot);
    }
  }
}

int Comparison::run() {
  start();
  if (!options_.record.empty()) {
    replay_record();
  } else {
    for (requests_ = 1; requests_ <= options_.requests; ++requests_) {
      random_request();
      if (!compare(requests_ % 2000 == 0)) return 1;
    }
    if (pool_ != 0) toggle_pool();
    for (auto& live : live_) let_go(live);
  }
  if (!compare(true)) return 1;
  printf("events %" PRIu64 " requests %" PRIu64 " refused %" PRIu64 " retries %" PRIu64 " segments %" PRIu64 " differences 0\n", events_, requests_, refused_,
         allocator_->stats().retries, allocator_->stats().device_allocations);
  fflush(stdout);
  _Exit(0);  // PyTorch's exit handlers have nothing to do with it
}

}  // namespace conformance
