// SPDX-License-Identifier: Apache-2.0
// Batches of different lengths in other orders than the one that was run. See orders.h.
#include "estimator/allocator/orders.h"

#include <algorithm>
#include <random>
#include <set>

#include "estimator/allocator/steps.h"

namespace gpumem::allocator {
namespace {

constexpr std::uint64_t kSeed = 1;
// Batches of an order of a job that is longer than what was run: each of 18 shapes comes with 97 %.
constexpr std::size_t kLongOrder = 64;

// What each part's batch is drawn from, by loader: numbers of shapes, as often as they were seen.
std::map<std::uint64_t, std::vector<int>> shapes_to_draw(Steps& steps, const record::Process& process, Orders& orders) {
  std::map<std::uint64_t, std::vector<int>> by_loader;
  std::set<int> used;
  std::set<record::BatchShape> seen;
  for (const auto& [loader, shapes] : process.batches) {
    for (const auto& shape : shapes) {
      seen.insert(shape);
      if (const auto number = steps.shape(shape)) {
        by_loader[loader].push_back(*number);
        used.insert(*number);
      }
    }
  }
  orders.shapes = used.size();
  orders.looked_at = seen.size();
  return by_loader;
}

// The job trains more batches than were run.
bool was_shortened(const record::Process& process) {
  return process.stop_reason == "stable" || std::any_of(process.notes.begin(), process.notes.end(), [](const auto& note) { return note.kind == "epoch"; });
}

}  // namespace

bool has_orders(const record::Process& process) { return !process.batches.empty() && process.batch_marks.size() >= 2; }

Result<Orders> replay_orders(const Participant& participant, const record::Process& process, std::uint64_t total_bytes, std::uint64_t room_bytes,
                             std::uint64_t limit_bytes) {
  auto steps = Steps::make(*participant.trace, process.batch_marks);
  if (!steps) return steps.error();
  Orders orders;
  const auto by_loader = shapes_to_draw(*steps, process, orders);
  if (orders.shapes < 2) return Error{ErrorKind::unsupported, "of the batches' shapes only one was trained"};
  ReplayOptions options;
  options.total_bytes = total_bytes;
  options.capacity_bytes = room_bytes;
  const auto run = [&](const Trace& trace) { return replay(trace, participant.config, options); };
  orders.as_run_bytes = run(steps->with(steps->as_run())).peak_device_bytes;
  if (orders.as_run_bytes != participant.trace->peak_reserved_bytes) {
    return Error{ErrorKind::unsupported, "the order that was run does not come to what was recorded"};
  }
  auto turns = was_shortened(process) ? steps->longer(kLongOrder) : steps->as_run();
  const auto is_drawn = [&](const Turn& turn) { return by_loader.count(steps->loader_of(turn.part)) > 0 && steps->shape_of(turn.part) >= 0; };
  orders.batches = static_cast<std::size_t>(std::count_if(turns.begin(), turns.end(), is_drawn));
  orders.limit_bytes = limit_bytes;
  const std::size_t requests = participant.trace->requests.size() * turns.size() / steps->parts();
  const int count = std::clamp(static_cast<int>(std::min<std::size_t>(kReplayedRequests / std::max<std::size_t>(1, requests), kMostOrders)), kLeastOrders, kMostOrders);
  std::mt19937_64 draw(kSeed);
  std::vector<std::uint64_t> peaks;
  std::map<std::vector<int>, ReplayResult> known;  // of the orders so far: short ones come again
  for (int i = 0; i < count; ++i) {
    std::vector<int> shapes;
    for (auto& turn : turns) {
      if (!is_drawn(turn)) continue;
      const auto& from = by_loader.at(steps->loader_of(turn.part));
      shapes.push_back(turn.shape = from[draw() % from.size()]);
    }
    auto found = known.find(shapes);
    const bool again = found != known.end();
    Trace trace;
    if (!again) {
      trace = steps->with(turns);
      found = known.emplace(shapes, run(trace)).first;
    }
    const ReplayResult& result = found->second;
    const std::uint64_t peak_bytes = result.out_of_memory ? room_bytes : result.peak_device_bytes;
    orders.full += result.out_of_memory;
    peaks.push_back(peak_bytes);
    if (again || (!result.out_of_memory && peak_bytes <= orders.limit_bytes)) continue;
    const Participant one{&trace, participant.config};
    ReplayOptions bounded = options;
    bounded.capacity_bytes = orders.limit_bytes;
    if (!replay(std::span(&one, 1), bounded).out_of_memory) continue;
    if (const auto minimum = find_minimum_limit(std::span(&one, 1), total_bytes)) orders.limit_bytes = std::max(orders.limit_bytes, minimum->limit_bytes);
  }
  std::sort(peaks.begin(), peaks.end());
  orders.count = count;
  orders.lowest_bytes = peaks.front();
  orders.middle_bytes = peaks[(peaks.size() - 1) / 2];
  orders.highest_bytes = peaks.back();
  return orders;
}

}  // namespace gpumem::allocator
