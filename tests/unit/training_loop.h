// SPDX-License-Identifier: Apache-2.0
// A training loop as PyTorch's allocator sees it, with batches of any lengths; as requests, and as a record has it. For tests.
#pragma once

#include <functional>

#include "estimator/allocator/orders.h"

namespace gpumem::allocator {

using record::BatchMark;
using record::BatchShape;
inline constexpr std::uint64_t kLoopKiB = 1u << 10, kLoopMiB = 1u << 20, kTotal = std::uint64_t{16} << 30;

class Loop {
 public:
  int extra_every = 0;                                   // each so many-th batch asks for more, whatever its length
  std::function<std::uint64_t(std::uint64_t)> activation = [](std::uint64_t length) { return length * 48 * kLoopKiB; };

  Trace run(const std::vector<std::uint32_t>& lengths) {
    trace_ = {};
    marks.clear();
    for (int i = 0; i < 6; ++i) parameters_.push_back(ask(1, (3 + static_cast<std::uint64_t>(i) % 3) * kLoopMiB));
    for (std::size_t number = 0; number < lengths.size(); ++number) part(number, lengths[number]);
    for (const auto slot : gradients_) let_go(slot);
    if (batch_ != kNone) let_go(batch_);
    const ReplayResult result = replay(trace_, config());
    trace_.peak_reserved_bytes = result.peak_device_bytes;
    parameters_.clear();
    gradients_.clear();
    batch_ = kNone;
    return trace_;
  }

  static Config config() { return config_from_environment(std::nullopt, std::nullopt, {2, 6}).value_or(Config{}); }
  static BatchShape shape(std::uint32_t length) { return {2, 4, length, 1, 4}; }

  std::vector<BatchMark> marks;

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  std::uint32_t ask(std::uint16_t origin, std::uint64_t bytes) {
    trace_.requests.push_back({Request::Kind::allocate, 0, origin, trace_.slots, bytes, 0, trace_.requests.size()});
    return trace_.slots++;
  }
  void let_go(std::uint32_t slot) { trace_.requests.push_back({Request::Kind::free, 0, 0, slot, 0, 0, trace_.requests.size()}); }

  void part(std::size_t number, std::uint32_t length) {
    marks.push_back({number + 1, 1, shape(length)});
    trace_.requests.push_back({Request::Kind::batch, 0, 0, 0, number + 1, 0, trace_.requests.size()});
    for (const auto slot : gradients_) let_go(slot);
    gradients_.clear();
    const auto batch = ask(2, 8ull * 4 * length);
    if (batch_ != kNone) let_go(batch_);  // the variable held the one before until now
    batch_ = batch;
    std::vector<std::uint32_t> kept;
    for (int layer = 0; layer < 6; ++layer) {
      if (length % 8 != 0) let_go(ask(3, 16ull * kLoopKiB * ((length + 7) / 8 * 8)));  // padded for alignment
      kept.push_back(ask(4, activation(length)));
      kept.push_back(ask(5, 512ull * length * length));
      let_go(ask(4, activation(length) / 2));
    }
    if (extra_every > 0 && number % static_cast<std::size_t>(extra_every) == 0) let_go(ask(9, 200 * kLoopMiB + 20 * kLoopMiB * number));
    for (int layer = 6; layer-- > 0;) {
      let_go(ask(6, activation(length)));
      gradients_.push_back(ask(7, (3 + static_cast<std::uint64_t>(layer) % 3) * kLoopMiB));
      let_go(kept[static_cast<std::size_t>(2 * layer + 1)]);
      let_go(kept[static_cast<std::size_t>(2 * layer)]);
    }
    for (int i = 0; number == 0 && i < 12; ++i) parameters_.push_back(ask(8, (3 + static_cast<std::uint64_t>(i / 2) % 3) * kLoopMiB));  // Adam's state
    trace_.requests.push_back({Request::Kind::step, 0, 0, 0, number + 1, 0, trace_.requests.size()});
  }

  Trace trace_;
  std::vector<std::uint32_t> parameters_, gradients_;
  std::uint32_t batch_ = kNone;
};

// What the tracer writes of such a run under an allocator that has all it likes.
inline record::EventFile events_of(const Trace& trace) {
  record::EventFile file;
  VirtualGpu gpu(kNoLimit, kTotal);
  Allocator allocator(Loop::config(), gpu);
  std::vector<Event> made;
  allocator.log_to(&made);
  std::vector<Block*> blocks(trace.slots);
  for (const auto& request : trace.requests) {
    made.clear();
    const auto add = [&](record::EventAction action, std::uint64_t address, std::uint64_t size) {
      file.events.push_back({action, 0, 0, 0, request.origin, 0, 0, address, size, file.events.size()});
    };
    if (request.kind == Request::Kind::allocate) blocks[request.slot] = allocator.allocate(request.bytes, request.stream);
    else if (request.kind == Request::Kind::free) allocator.free(blocks[request.slot]);
    else add(request.kind == Request::Kind::step ? record::EventAction::step : record::EventAction::batch, 0, request.bytes);
    for (const auto& event : made) add(static_cast<record::EventAction>(event.action), event.address, event.size);
  }
  return file;
}

// What the shim writes of it where a DataLoader has looked at batches of these lengths.
inline record::Process recorded(const Loop& loop, const std::vector<std::uint32_t>& looked_at) {
  record::Process process;
  process.batch_marks = loop.marks;
  process.stop_reason = "exit";
  for (const auto length : looked_at) process.batches[1].push_back(Loop::shape(length));
  return process;
}

}  // namespace gpumem::allocator
