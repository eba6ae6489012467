// SPDX-License-Identifier: Apache-2.0
// Device memory past PyTorch's allocator, by time. See outside.h.
#include "estimator/allocator/outside.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <unordered_map>

#include "estimator/allocator/driver.h"

namespace gpumem::allocator {
namespace {

using record::EventAction;
using record::MemoryChange;

// Clocks of one host differ by less, or the lines are not of one segment.
constexpr std::int64_t kMostDifference_ns = 1000000000;

// What PyTorch's allocator took, by address.
class Segments {
 public:
  Segments(const record::EventFile& file, int device) {
    for (const auto& event : file.events) {
      if (event.device != device || event.size > std::numeric_limits<std::uint64_t>::max() / 2) continue;
      const std::uint64_t unix_ns = file.start_ns + event.time_ns;
      if (event.action == EventAction::segment_allocate) whole_.emplace(event.address, Segment{in_whole_granules(event.size), unix_ns, false});
      if (event.action == EventAction::segment_map) {
        auto& known = mapped_.try_emplace(event.address, Segment{0, unix_ns, false}).first->second;
        known.bytes = std::max(known.bytes, event.size);
      }
    }
  }

  // cudaMalloc's answer; addresses come again only after terabytes, then in the order of the events.
  bool take_whole(const MemoryChange& change) {
    const auto [begin, end] = whole_.equal_range(change.address);
    for (auto at = begin; at != end; ++at) {
      if (at->second.told || at->second.bytes != change.bytes) continue;
      at->second.told = true;
      compare_clocks(change.unix_ns, at->second.unix_ns);
      return true;
    }
    return false;
  }

  // An address at which physical memory was mapped: in a segment that PyTorch has ever mapped there.
  bool take_mapped(const MemoryChange& mapped) {
    auto above = mapped_.upper_bound(mapped.address);
    while (above != mapped_.begin()) {
      auto& [address, segment] = *--above;
      if (mapped.address - address >= segment.bytes) {
        if (mapped.address - address > kLongestSearch) return false;
        continue;
      }
      if (address == mapped.address && !segment.told) compare_clocks(mapped.unix_ns, segment.unix_ns);
      segment.told = segment.told || address == mapped.address;
      return true;
    }
    return false;
  }

  // What is to be added to a line's time to have the events'.
  std::int64_t difference_ns() const { return compared_ ? difference_ns_ : 0; }

 private:
  struct Segment {
    std::uint64_t bytes, unix_ns;
    bool told;
  };

  void compare_clocks(std::uint64_t line_ns, std::uint64_t event_ns) {
    const auto difference = static_cast<std::int64_t>(event_ns - line_ns);
    if (difference < -kMostDifference_ns || (compared_ && difference >= difference_ns_)) return;
    difference_ns_ = difference;
    compared_ = true;
  }

  // No reservation is larger: PyTorch's has room for the whole device and an eighth.
  static constexpr std::uint64_t kLongestSearch = std::uint64_t{1} << 40;
  std::multimap<std::uint64_t, Segment> whole_;
  std::map<std::uint64_t, Segment> mapped_;  // the first of each address, as long as the longest
  std::int64_t difference_ns_ = 0;
  bool compared_ = false;
};

// The changes of a device that are not PyTorch's, with the lines' own times.
std::vector<MemoryChange> left_over(const record::MemoryLog& log, int device, Segments& segments) {
  // By handle, where each physical memory was mapped first after it was taken.
  std::unordered_map<std::uint64_t, std::vector<const MemoryChange*>> places;
  for (const auto& change : log.changes) {
    if (change.kind == MemoryChange::Kind::mapped) places[change.handle].push_back(&change);
  }
  const auto first_place = [&](const MemoryChange& taken) -> const MemoryChange* {
    const auto found = places.find(taken.address);
    if (found == places.end()) return nullptr;
    for (const auto* place : found->second) {
      if (place->unix_ns >= taken.unix_ns) return place;
    }
    return nullptr;
  };
  std::vector<MemoryChange> left;
  std::unordered_map<std::uint64_t, bool> is_pytorchs;  // of what is held now, by address or handle
  for (const auto& change : log.changes) {
    if (change.device != device || change.kind == MemoryChange::Kind::mapped) continue;
    if (change.kind == MemoryChange::Kind::taken) {
      bool pytorchs = change.address != 0 && segments.take_whole(change);
      const MemoryChange* place = pytorchs || change.address == 0 ? nullptr : first_place(change);
      if (place != nullptr) pytorchs = segments.take_mapped(*place);
      if (change.address != 0) is_pytorchs[change.address] = pytorchs;
      if (!pytorchs) left.push_back(change);
    } else {
      const auto held = change.address == 0 ? is_pytorchs.end() : is_pytorchs.find(change.address);
      if (held == is_pytorchs.end() || !held->second) left.push_back(change);
      if (held != is_pytorchs.end()) is_pytorchs.erase(held);
    }
  }
  return left;
}

std::vector<Outside> by_time(const std::vector<MemoryChange>& changes, std::int64_t start_ns) {
  std::vector<Outside> outside;
  for (const auto& change : changes) {
    const std::int64_t since_ns = static_cast<std::int64_t>(change.unix_ns) - start_ns;
    outside.push_back({static_cast<std::uint64_t>(std::max<std::int64_t>(0, since_ns)), change.bytes, change.kind == MemoryChange::Kind::taken});
  }
  std::stable_sort(outside.begin(), outside.end(), [](const Outside& a, const Outside& b) { return a.time_ns < b.time_ns; });
  return outside;
}

}  // namespace

std::vector<Outside> outside_of(const record::MemoryLog& log, const record::EventFile& file, int device) {
  Segments segments(file, device);
  const auto left = left_over(log, device, segments);
  return by_time(left, static_cast<std::int64_t>(file.start_ns) - segments.difference_ns());
}

Trace trace_of_outside(const record::MemoryLog& log, int device) {
  Trace trace;
  if (log.changes.empty()) return trace;
  trace.start_ns = log.changes.front().unix_ns;
  Segments none(record::EventFile{}, device);
  trace.outside = by_time(left_over(log, device, none), static_cast<std::int64_t>(trace.start_ns));
  return trace;
}

std::uint64_t peak_outside(const std::vector<Outside>& outside) {
  std::uint64_t now_bytes = 0, peak_bytes = 0;
  for (const auto& change : outside) {
    now_bytes = held_after(now_bytes, change);
    peak_bytes = std::max(peak_bytes, now_bytes);
  }
  return peak_bytes;
}

}  // namespace gpumem::allocator
