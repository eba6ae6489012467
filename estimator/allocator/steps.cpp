// SPDX-License-Identifier: Apache-2.0
// A recorded training run cut into what was done with each batch. See steps.h; sizes in other lengths: step_sizes.cpp.
#include "estimator/allocator/steps.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <unordered_map>

#include "estimator/allocator/align.h"

namespace gpumem::allocator {
namespace {

constexpr std::size_t kMostParts = 512;

bool frees(Request::Kind kind) { return kind == Request::Kind::free || kind == Request::Kind::free_later || kind == Request::Kind::complete; }

std::uint64_t key_of(Request::Kind kind, std::uint64_t age, std::uint64_t number) {
  return static_cast<std::uint64_t>(kind) << 56 | std::min<std::uint64_t>(age, 0xffff) << 40 | (number & 0xffffffffff);
}

}  // namespace

Result<Steps> Steps::make(const Trace& trace, const std::vector<record::BatchMark>& marks) {
  if (trace.private_pools) return Error{ErrorKind::unsupported, "memory of CUDA graphs is its own"};
  if (trace.unknown > 0 || trace.refused > 0) return Error{ErrorKind::unsupported, "the record has gaps or refused requests"};
  if (trace.requests.size() > kMostStepRequests) return Error{ErrorKind::unsupported, "it asked for memory too often"};
  for (int lag = 0; lag <= 1; ++lag) {  // a loader may be asked for a batch before the last one is used
    Steps steps;
    steps.cut(trace, marks);
    if (steps.parts_.size() < 2) return Error{ErrorKind::unsupported, "fewer than two batches were trained"};
    if (steps.parts_.size() > kMostParts) return Error{ErrorKind::unsupported, "too many batches were trained"};
    if (lag == 1) {
      int before = -1;
      for (auto& part : steps.parts_) std::swap(part.shape, before);
    }
    if (auto aligned = steps.align_allocations(); !aligned) return aligned.error();
    steps.align_events();
    steps.collect_points();
    auto checked = steps.check();
    if (checked) return steps;
    if (lag == 1) return checked.error();
  }
  return Error{ErrorKind::unsupported, ""};
}

int Steps::number_of(const record::BatchShape& shape) {
  const auto found = std::find(shapes_.begin(), shapes_.end(), shape);
  if (found == shapes_.end()) {
    shapes_.push_back(shape);
    return static_cast<int>(shapes_.size()) - 1;
  }
  return static_cast<int>(found - shapes_.begin());
}

void Steps::cut(const Trace& trace, const std::vector<record::BatchMark>& marks) {
  std::unordered_map<std::uint64_t, const record::BatchMark*> by_number;
  for (const auto& mark : marks) by_number.emplace(mark.number, &mark);
  const auto begin_part = [&](const record::BatchMark& mark) {
    parts_.emplace_back();
    parts_.back().shape = mark.shape ? number_of(*mark.shape) : -1;
    parts_.back().loader = mark.loader;
  };
  // CUDA began after the first batch was handed out.
  for (const auto& request : trace.requests) {
    if (request.kind != Request::Kind::batch) continue;
    const auto before = by_number.find(request.bytes - 1);
    if (before != by_number.end()) begin_part(*before->second);
    break;
  }
  struct Where {
    int part = -1, index = -1;
  };
  std::vector<Where> live(trace.slots);
  int setup_allocations = 0;
  for (const auto& request : trace.requests) {
    if (request.kind == Request::Kind::batch) {
      const auto mark = by_number.find(request.bytes);
      if (mark != by_number.end()) begin_part(*mark->second);
      continue;
    }
    const int number = static_cast<int>(parts_.size()) - 1;
    Part* part = parts_.empty() ? nullptr : &parts_.back();
    Event event{request.kind, request.pool, request.origin, request.stream, request.bytes, number, 0, -1, -1};
    if (request.kind == Request::Kind::allocate) {
      event.index = part == nullptr ? setup_allocations++ : static_cast<int>(part->allocations.size());
      if (part == nullptr) {
        setup_dies_.push_back(-1);
      } else {
        part->allocations.push_back(static_cast<int>(part->events.size()));
        part->dies.push_back(-1);
      }
      live[request.slot] = {number, event.index};
    } else if (frees(request.kind)) {
      event.part = live[request.slot].part;
      event.index = live[request.slot].index;
      auto& dies = event.part < 0 ? setup_dies_ : parts_[static_cast<std::size_t>(event.part)].dies;
      dies[static_cast<std::size_t>(event.index)] = number;
    } else if (request.kind == Request::Kind::step && part != nullptr) {
      ++part->steps;
    }
    (part == nullptr ? setup_ : part->events).push_back(event);
  }
  // What a program lets go of at its end.
  while (!parts_.empty() && !parts_.back().events.empty() && frees(parts_.back().events.back().kind)) {
    const Event& event = parts_.back().events.back();
    auto& dies = event.part < 0 ? setup_dies_ : parts_[static_cast<std::size_t>(event.part)].dies;
    dies[static_cast<std::size_t>(event.index)] = -1;
    parts_.back().events.pop_back();
  }
}

// The last part first, the first part, which is like no other, last.
Result<void> Steps::align_allocations() {
  struct Column {
    int number;
    std::uint64_t key, bytes;
    int shape;
  };
  std::vector<Column> columns;
  int count = 0;
  find_lengths();
  for (auto part = parts_.rbegin(); part != parts_.rend(); ++part) {
    std::vector<std::uint64_t> a, b;
    for (const auto& column : columns) a.push_back(column.key);
    for (const int index : part->allocations) {
      const Event& event = part->events[static_cast<std::size_t>(index)];
      b.push_back(event.stream * 0x9e3779b97f4a7c15u ^ (std::uint64_t{event.pool} << 16 | event.origin));
    }
    auto matches = align(a, b, kMostDifferences);
    if (!matches && columns.empty()) matches.emplace();
    if (!matches) return Error{ErrorKind::unsupported, "what is done with one batch differs too much from what is done with another"};
    const auto event_of = [&](int index) -> Event& { return part->events[static_cast<std::size_t>(part->allocations[static_cast<std::size_t>(index)])]; };
    slide(a, b, *matches, [&](int i, int j) {
      const Column& column = columns[static_cast<std::size_t>(i)];
      const double ratio = static_cast<double>(event_of(j).bytes) / static_cast<double>(column.bytes);
      if (ratio == 1) return true;
      if (part->shape < 0 || column.shape < 0) return false;
      const auto &here = lengths_[static_cast<std::size_t>(part->shape)], &there = lengths_[static_cast<std::size_t>(column.shape)];
      for (std::size_t k = 0; k < here.size(); ++k) {
        const double one = here[k] / there[k];
        if (std::abs(ratio / one - 1) < 1e-9 || std::abs(ratio / (one * one) - 1) < 1e-9) return true;
      }
      return false;
    });
    std::vector<Column> merged;
    std::size_t at = 0, next = 0;
    for (int j = 0; j < static_cast<int>(b.size()); ++j) {
      Event& event = event_of(j);
      const bool matched = next < matches->size() && (*matches)[next].second == j;
      if (matched) {
        for (; at < static_cast<std::size_t>((*matches)[next].first); ++at) merged.push_back(columns[at]);
        event.column = columns[at++].number;
        ++next;
      } else {
        event.column = count++;
      }
      merged.push_back({event.column, b[static_cast<std::size_t>(j)], event.bytes, part->shape});
    }
    for (; at < columns.size(); ++at) merged.push_back(columns[at]);
    columns = std::move(merged);
  }
  points_.resize(static_cast<std::size_t>(count));
  return {};
}

// Now that each allocation has a column, each event has a name of its own.
void Steps::align_events() {
  std::vector<std::uint64_t> keys;     // of the list of all
  std::vector<Event> list;
  std::vector<std::uint64_t> ids;      // of its entries, in the order in which they came
  std::uint64_t count = 0;
  for (std::size_t number = parts_.size(); number-- > 0;) {
    Part& part = parts_[number];
    std::vector<std::uint64_t> mine;
    std::unordered_map<int, std::uint64_t> others;
    for (auto& event : part.events) {
      if (frees(event.kind)) {
        if (event.part >= 0) {
          const Part& born = parts_[static_cast<std::size_t>(event.part)];
          event.column = born.events[static_cast<std::size_t>(born.allocations[static_cast<std::size_t>(event.index)])].column;
        }
        mine.push_back(event.part < 0 ? key_of(event.kind, 0xffff, static_cast<std::uint64_t>(event.index))
                                      : key_of(event.kind, number - static_cast<std::size_t>(event.part), static_cast<std::uint64_t>(event.column)));
      } else if (event.kind == Request::Kind::allocate) {
        mine.push_back(key_of(event.kind, 0, static_cast<std::uint64_t>(event.column)));
      } else {
        mine.push_back(key_of(event.kind, 0, others[static_cast<int>(event.kind)]++));
      }
    }
    const Matches matches = align_unique(keys, mine);
    std::vector<std::uint64_t> merged_keys, merged_ids;
    std::vector<Event> merged;
    std::size_t at = 0, next = 0;
    const auto keep = [&] {
      merged_keys.push_back(keys[at]);
      merged_ids.push_back(ids[at]);
      merged.push_back(list[at]);
      ++at;
    };
    for (int j = 0; j < static_cast<int>(mine.size()); ++j) {
      Event& event = part.events[static_cast<std::size_t>(j)];
      if (next < matches.size() && matches[next].second == j) {
        while (at < static_cast<std::size_t>(matches[next].first)) keep();
        event.place = static_cast<int>(ids[at]);
        keep();
        ++next;
      } else {
        event.place = static_cast<int>(count);
        merged_keys.push_back(mine[static_cast<std::size_t>(j)]);
        merged_ids.push_back(count++);
        merged.push_back(event);
        if (event.part >= 0) merged.back().part = static_cast<int>(number) - event.part;
      }
    }
    while (at < keys.size()) keep();
    keys = std::move(merged_keys);
    ids = std::move(merged_ids);
    list = std::move(merged);
  }
  std::vector<int> place_of(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) place_of[ids[i]] = static_cast<int>(i);
  for (std::size_t number = 0; number < parts_.size(); ++number) {
    for (auto& event : parts_[number].events) {
      event.place = place_of[static_cast<std::size_t>(event.place)];
      parts_[number].places.push_back(event.place);
    }
  }
  places_ = std::move(list);
}

}  // namespace gpumem::allocator
