// SPDX-License-Identifier: Apache-2.0
// Recorded requests under another capacity or other settings. See replay.h.
#include "estimator/allocator/replay.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <functional>
#include <iterator>
#include <memory>
#include <set>
#include <utility>

namespace gpumem::allocator {
namespace {

constexpr std::size_t kMostOutside = 1u << 16;  // changes whose figures are kept
// Capacities above a limit that are looked at, each a replay: fewer of long runs, whose replays take a second together.
constexpr std::uint64_t kMostTried = 24, kLeastTried = 4, kTriedRequests = 16u << 20;

// One participant while it is replayed.
class Player {
 public:
  Player(const Participant& participant, Driver& driver, std::uint64_t lag_allocations)
      : lag_allocations_(lag_allocations), trace_(*participant.trace), driver_(driver), allocator_(participant.config, driver), blocks_(trace_.slots), tickets_(trace_.slots) {}

  bool at_end() const { return next_ >= trace_.requests.size() && next_outside_ >= trace_.outside.size(); }
  std::size_t next() const { return next_; }
  std::uint64_t next_time() const { return trace_.start_ns + (next_is_outside() ? trace_.outside[next_outside_].time_ns : trace_.requests[next_].time_ns); }
  const Allocator& allocator() const { return allocator_; }
  std::uint64_t held_bytes() const { return allocator_.stats().reserved_bytes.current + outside_bytes_; }

  // Note [Outside]
  bool next_is_outside() const {
    return next_outside_ < trace_.outside.size() &&
           (next_ >= trace_.requests.size() || trace_.outside[next_outside_].time_ns <= trace_.requests[next_].time_ns);
  }
  std::uint64_t next_bytes() const { return next_is_outside() ? trace_.outside[next_outside_].bytes : trace_.requests[next_].bytes; }
  // False where it was refused.
  bool play_outside() {
    const Outside& change = trace_.outside[next_outside_++];
    const std::uint64_t after_bytes = held_after(outside_bytes_, change);
    if (change.taken && !driver_.create_physical(change.bytes)) return false;
    if (!change.taken) driver_.release_physical(outside_bytes_ - after_bytes);
    outside_bytes_ = after_bytes;
    return true;
  }

  // False where a request was refused that had been served.
  bool play() {
    const Request& request = trace_.requests[next_++];
    switch (request.kind) {
      case Request::Kind::allocate:
        ++allocations_;
        catch_up(allocations_);
        blocks_[request.slot] = allocator_.allocate(request.bytes, request.stream, request.pool);
        return blocks_[request.slot] != nullptr;
      case Request::Kind::free:
        if (Block*& block = blocks_[request.slot]; block != nullptr) allocator_.free(std::exchange(block, nullptr));
        break;
      case Request::Kind::free_later:
        tickets_[request.slot] = 0;
        if (Block*& block = blocks_[request.slot]; block != nullptr) tickets_[request.slot] = allocator_.free_later(std::exchange(block, nullptr));
        break;
      case Request::Kind::complete:
        late_.push_back({tickets_[request.slot], allocations_ + lag_allocations_});
        catch_up(allocations_);
        break;
      case Request::Kind::empty_cache:
        catch_up(kNoLimit);
        allocator_.empty_cache();
        break;
      case Request::Kind::release_pool:
        catch_up(kNoLimit);
        allocator_.use_pool(request.pool);
        allocator_.release_pool(request.pool);
        break;
      case Request::Kind::memory_fraction: {
        const double fraction = std::bit_cast<double>(request.bytes);
        if (fraction >= 0 && fraction <= 1) allocator_.set_memory_fraction(fraction);
        break;
      }
      case Request::Kind::refused:
        if (Block* block = allocator_.allocate(request.bytes, request.stream, request.pool)) allocator_.free(block);
        break;
      case Request::Kind::step:
      case Request::Kind::batch: break;
    }
    return true;
  }

 private:
  struct Late {
    std::uint64_t ticket, due;  // in allocations
  };
  void catch_up(std::uint64_t allocations) {
    for (; !late_.empty() && late_.front().due <= allocations; late_.pop_front()) allocator_.complete(late_.front().ticket);
  }

  const std::uint64_t lag_allocations_;
  const Trace& trace_;
  Driver& driver_;
  Allocator allocator_;
  std::vector<Block*> blocks_;
  std::vector<std::uint64_t> tickets_;
  std::deque<Late> late_;
  std::uint64_t allocations_ = 0;
  std::size_t next_ = 0, next_outside_ = 0;
  std::uint64_t outside_bytes_ = 0;
};

}  // namespace

ReplayResult replay(std::span<const Participant> participants, const ReplayOptions& options) {
  VirtualGpu gpu(options.capacity_bytes, options.total_bytes);
  ReplayResult result;
  std::vector<std::unique_ptr<Player>> players;
  for (const auto& participant : participants) players.push_back(std::make_unique<Player>(participant, gpu, options.lag_allocations));
  const auto play = [&](std::size_t index) {  // false: stop
    Player& player = *players[index];
    const std::size_t request = player.next();
    const bool outside = player.next_is_outside();
    const std::uint64_t bytes = player.next_bytes();
    ++result.events;
    if (!(outside ? player.play_outside() : player.play())) {
      if (!result.out_of_memory) {
        result.failed_participant = index;
        result.failed_request = request;
        result.failed_bytes = bytes;
      }
      result.out_of_memory = true;
      if (options.stop_at_out_of_memory) return false;
    }
    if (outside && result.after_outside_bytes.size() < kMostOutside) result.after_outside_bytes.push_back(gpu.used_bytes());
    if (options.observe && !outside) options.observe(index, request, player.allocator());
    return true;
  };
  if (players.size() == 1) {
    while (!players[0]->at_end() && play(0)) {
    }
  } else {
    std::vector<std::size_t> running;
    for (std::size_t i = 0; i < players.size(); ++i) {
      if (!players[i]->at_end()) running.push_back(i);
    }
    while (!running.empty()) {
      const auto first = std::min_element(running.begin(), running.end(), [&](auto a, auto b) { return players[a]->next_time() < players[b]->next_time(); });
      if (!play(*first)) break;
      if (players[*first]->at_end()) {
        gpu.release_all(players[*first]->held_bytes());
        running.erase(first);
      }
    }
  }
  result.peak_device_bytes = gpu.peak_bytes();
  for (const auto& player : players) result.stats.push_back(player->allocator().stats());
  return result;
}

ReplayResult replay(const Trace& trace, const Config& config, const ReplayOptions& options) {
  const Participant participant{&trace, config};
  return replay(std::span(&participant, 1), options);
}

namespace {

// Note [Outside]: capacities between a limit and the peak, in granules, at which memory outside may find the cache in its room; largest first.
std::vector<std::uint64_t> doubtful(const std::vector<std::uint64_t>& after_outside_bytes, std::uint64_t limit, std::uint64_t peak, std::uint64_t most) {
  std::set<std::uint64_t, std::greater<>> found;
  for (const std::uint64_t bytes : after_outside_bytes) {
    const std::uint64_t held = granules(bytes);
    if (held > limit + 1 && held <= peak) found.insert(held - 1);  // a granule less than it was when it had all it likes
  }
  while (found.size() > most / 2) found.erase(std::prev(found.end()));
  for (std::uint64_t i = 1; i <= most / 2; ++i) {
    const std::uint64_t between = limit + (peak - limit) * i / (most / 2 + 1);
    if (between > limit && between < peak) found.insert(between);
  }
  return {found.begin(), found.end()};
}

}  // namespace

std::optional<MinimumLimit> find_minimum_limit(std::span<const Participant> participants, std::uint64_t total_bytes) {
  ReplayOptions options;
  options.total_bytes = total_bytes;
  const ReplayResult whole = replay(participants, options);
  if (whole.out_of_memory) return std::nullopt;
  MinimumLimit minimum;
  minimum.replays = 1;
  minimum.peak_device_bytes = whole.peak_device_bytes;
  std::uint64_t low = 0;  // the largest known not to be enough, in granules
  for (std::size_t i = 0; i < participants.size(); ++i) {
    minimum.peak_allocated_bytes += whole.stats[i].allocated_bytes.peak;
    minimum.peak_reserved_bytes += whole.stats[i].reserved_bytes.peak;
    low = std::max(low, whole.stats[i].allocated_bytes.peak / kGranularity);
  }
  if (low > 0) --low;
  const std::uint64_t peak = granules(whole.peak_device_bytes);
  std::uint64_t high = peak;
  const auto retries_within = [&](std::uint64_t capacity) -> std::optional<std::uint64_t> {  // none: out of memory
    options.capacity_bytes = capacity * kGranularity;
    const ReplayResult result = replay(participants, options);
    ++minimum.replays;
    if (result.out_of_memory) return std::nullopt;
    std::uint64_t retries = 0;
    for (const auto& stats : result.stats) retries += stats.retries;
    return retries;
  };
  const auto bisect = [&] {
    while (high > low + 1) {
      const std::uint64_t middle = low + (high - low) / 2;
      const auto retries = retries_within(middle);
      (retries ? high : low) = middle;
      if (retries) minimum.retries = *retries;
    }
  };
  bisect();
  if (!whole.after_outside_bytes.empty()) {
    std::uint64_t above = peak, above_retries = 0;
    const std::uint64_t most = std::clamp(kTriedRequests / std::max<std::uint64_t>(1, whole.events), kLeastTried, kMostTried);
    for (const std::uint64_t tried : doubtful(whole.after_outside_bytes, high, peak, most)) {
      if (const auto retries = retries_within(tried)) {
        above = tried;
        above_retries = *retries;
        continue;
      }
      low = tried;
      high = above;
      minimum.retries = above_retries;
      bisect();
      break;
    }
  }
  minimum.limit_bytes = high * kGranularity;
  return minimum;
}

bool crosses_streams(const Trace& trace) {
  return std::any_of(trace.requests.begin(), trace.requests.end(), [](const Request& request) { return request.kind == Request::Kind::free_later; });
}

bool passes_lagging(std::span<const Participant> participants, std::uint64_t total_bytes, std::uint64_t limit_bytes) {
  ReplayOptions options;
  options.total_bytes = total_bytes;
  options.capacity_bytes = limit_bytes;
  options.lag_allocations = kLagAllocations;
  return !replay(participants, options).out_of_memory;
}

bool reproduces(const Participant& participant, std::uint64_t total_bytes, std::uint64_t* peak_device_bytes) {
  if (participant.trace->unknown > 0) return false;
  ReplayOptions options;
  options.total_bytes = total_bytes;
  const ReplayResult result = replay(std::span(&participant, 1), options);
  if (peak_device_bytes != nullptr) *peak_device_bytes = result.peak_device_bytes;
  return !result.out_of_memory && result.stats[0].reserved_bytes.peak == participant.trace->peak_reserved_bytes;
}

}  // namespace gpumem::allocator
