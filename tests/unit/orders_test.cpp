// SPDX-License-Identifier: Apache-2.0
// estimator/allocator: batches exchanged in a recorded run, and what other orders of them reserve.
#include <gtest/gtest.h>

#include <functional>

#include "estimator/allocator/align.h"
#include "estimator/allocator/orders.h"
#include "estimator/allocator/steps.h"

namespace gpumem::allocator {
namespace {

using record::BatchMark;
using record::BatchShape;
constexpr std::uint64_t kKiB = 1u << 10, kMiB = 1u << 20, kTotal = std::uint64_t{16} << 30;

// A training loop as PyTorch's allocator sees it.
class Loop {
 public:
  int extra_every = 0;                                   // each so many-th batch asks for more, whatever its length
  std::function<std::uint64_t(std::uint64_t)> activation = [](std::uint64_t length) { return length * 48 * kKiB; };

  Trace run(const std::vector<std::uint32_t>& lengths) {
    trace_ = {};
    marks.clear();
    for (int i = 0; i < 6; ++i) parameters_.push_back(ask(1, (3 + static_cast<std::uint64_t>(i) % 3) * kMiB));
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
      if (length % 8 != 0) let_go(ask(3, 16ull * kKiB * ((length + 7) / 8 * 8)));  // padded for alignment
      kept.push_back(ask(4, activation(length)));
      kept.push_back(ask(5, 512ull * length * length));
      let_go(ask(4, activation(length) / 2));
    }
    if (extra_every > 0 && number % static_cast<std::size_t>(extra_every) == 0) let_go(ask(9, 200 * kMiB + 20 * kMiB * number));
    for (int layer = 6; layer-- > 0;) {
      let_go(ask(6, activation(length)));
      gradients_.push_back(ask(7, (3 + static_cast<std::uint64_t>(layer) % 3) * kMiB));
      let_go(kept[static_cast<std::size_t>(2 * layer + 1)]);
      let_go(kept[static_cast<std::size_t>(2 * layer)]);
    }
    for (int i = 0; number == 0 && i < 12; ++i) parameters_.push_back(ask(8, (3 + static_cast<std::uint64_t>(i / 2) % 3) * kMiB));  // Adam's state
    trace_.requests.push_back({Request::Kind::step, 0, 0, 0, number + 1, 0, trace_.requests.size()});
  }

  Trace trace_;
  std::vector<std::uint32_t> parameters_, gradients_;
  std::uint32_t batch_ = kNone;
};

std::vector<Turn> turns_of(Steps& steps, const std::vector<std::uint32_t>& lengths) {
  std::vector<Turn> turns;
  for (const auto length : lengths) turns.push_back({turns.size(), steps.shape(Loop::shape(length)).value_or(-1)});
  return turns;
}

std::uint64_t peak_of(const Trace& trace) { return replay(trace, Loop::config()).peak_device_bytes; }

record::Process recorded(const Loop& loop, const std::vector<std::uint32_t>& looked_at) {
  record::Process process;
  process.batch_marks = loop.marks;
  process.stop_reason = "exit";
  for (const auto length : looked_at) process.batches[1].push_back(Loop::shape(length));
  return process;
}

TEST(Alignment, FindsWhatTwoListsHaveInCommon) {
  const auto found = align({1, 2, 3, 4, 5}, {1, 3, 9, 4, 5, 6}, 10);
  ASSERT_TRUE(found);
  EXPECT_EQ(*found, (Matches{{0, 0}, {2, 1}, {3, 3}, {4, 4}}));
  EXPECT_EQ(align_unique({1, 2, 3, 4, 5}, {1, 3, 9, 4, 5, 6}), *found);
  EXPECT_FALSE(align({1, 2, 3, 4}, {5, 6, 7, 8}, 3)) << "they differ in more places than were allowed";
  EXPECT_EQ(align({}, {}, 0), Matches{});
}

TEST(Alignment, ARunWithoutMatchMovesToWhereTheSizesFit) {
  const std::vector<std::uint64_t> a{7, 7, 1}, b{7, 7, 7, 1};
  const std::vector<int> size_a{30, 50, 9}, size_b{10, 30, 50, 9};
  auto matches = *align(a, b, 10);
  slide(a, b, matches, [&](int i, int j) { return size_a[static_cast<std::size_t>(i)] == size_b[static_cast<std::size_t>(j)]; });
  EXPECT_EQ(matches, (Matches{{0, 1}, {1, 2}, {2, 3}}));
}

TEST(Steps, TheOrderThatWasRunIsTheRecordAgain) {
  Loop loop;
  const Trace trace = loop.run({40, 128, 56, 77});
  auto steps = Steps::make(trace, loop.marks);
  ASSERT_TRUE(steps) << steps.error().message;
  EXPECT_EQ(steps->parts(), 4u);
  const Trace again = steps->with(steps->as_run());
  EXPECT_EQ(peak_of(again), trace.peak_reserved_bytes);
  ASSERT_LE(again.requests.size(), trace.requests.size());
}

TEST(Steps, BatchesAreExchangedAsIfTheProgramHadBeenRunSo) {
  Loop loop;
  const Trace trace = loop.run({40, 128, 77, 56});
  auto steps = Steps::make(trace, loop.marks);
  ASSERT_TRUE(steps) << steps.error().message;
  for (const std::vector<std::uint32_t>& order : std::vector<std::vector<std::uint32_t>>{{128, 40, 77, 56}, {77, 56, 128, 40}, {128, 128, 128, 128}, {40, 77, 128, 77}}) {
    EXPECT_EQ(peak_of(steps->with(turns_of(*steps, order))), Loop().run(order).peak_reserved_bytes) << order[0];
  }
}

TEST(Steps, WhatOnePartDoesBeyondItsBatchStaysWithThePart) {
  Loop loop, other;
  loop.extra_every = other.extra_every = 4;
  const Trace trace = loop.run({40, 128, 77, 56, 77, 40, 128, 56});
  auto steps = Steps::make(trace, loop.marks);
  ASSERT_TRUE(steps) << steps.error().message;
  const std::vector<std::uint32_t> order{128, 40, 56, 77, 128, 40, 77, 77};
  EXPECT_EQ(peak_of(steps->with(turns_of(*steps, order))), other.run(order).peak_reserved_bytes);
}

TEST(Steps, LengthsThatWereNotTrainedFollowFromThoseThatWere) {
  Loop loop;
  const Trace trace = loop.run({40, 128, 77, 56});
  auto steps = Steps::make(trace, loop.marks);
  ASSERT_TRUE(steps) << steps.error().message;
  EXPECT_EQ(steps->explained(), 1);
  for (const std::vector<std::uint32_t>& order : std::vector<std::vector<std::uint32_t>>{{99, 40, 120, 64}, {16, 19, 100, 111}}) {
    EXPECT_EQ(peak_of(steps->with(turns_of(*steps, order))), Loop().run(order).peak_reserved_bytes) << order[0];
  }
}

TEST(Steps, WhereLengthsDoNotExplainTheSizesOnlyTrainedShapesAreSpokenOf) {
  Loop loop;
  loop.activation = [](std::uint64_t length) { return (length * 7919 % 101 + 40) * 64 * kKiB; };
  const Trace trace = loop.run({40, 128, 77, 56, 40, 56, 128, 77});
  auto steps = Steps::make(trace, loop.marks);
  ASSERT_TRUE(steps) << steps.error().message;
  EXPECT_TRUE(steps->shape(Loop::shape(56)));
  EXPECT_FALSE(steps->shape(Loop::shape(99)));
  loop.activation = [count = std::uint64_t{0}](std::uint64_t) mutable { return (++count * 7919 % 101 + 40) * 64 * kKiB; };
  const Trace random = loop.run({40, 128, 77, 56});
  EXPECT_FALSE(Steps::make(random, loop.marks)) << "nothing can be said of sizes that do not follow from the batch";
}

TEST(Steps, EqualBatchesThatAskForDifferentSizesAreNotExchanged) {
  Loop loop;
  loop.activation = [count = std::uint64_t{0}](std::uint64_t length) mutable { return length * (40 + ++count % 29) * kKiB; };
  const Trace trace = loop.run({40, 128, 40, 128, 40, 128});
  const auto steps = Steps::make(trace, loop.marks);
  ASSERT_FALSE(steps);
  EXPECT_EQ(steps.error().message, "equal batches ask for different sizes");
}

TEST(Steps, ALongerRunRepeatsWhatRepeats) {
  Loop loop;
  const Trace trace = loop.run({40, 128, 77, 56, 128, 40});
  auto steps = Steps::make(trace, loop.marks);
  ASSERT_TRUE(steps) << steps.error().message;
  auto turns = steps->longer(40);
  ASSERT_EQ(turns.size(), 40u);
  const std::vector<std::uint32_t> lengths{128, 40, 77, 56};
  std::vector<std::uint32_t> order;
  for (std::size_t i = 0; i < turns.size(); ++i) {
    order.push_back(lengths[i * i % 4]);
    turns[i].shape = *steps->shape(Loop::shape(order.back()));
  }
  EXPECT_EQ(peak_of(steps->with(turns)), Loop().run(order).peak_reserved_bytes);
}

TEST(Orders, TheyAreTheSameEachTimeAndTheirLimitIsEnoughForTheRunToo) {
  Loop loop;
  const Trace trace = loop.run({40, 128, 77, 56});
  const auto process = recorded(loop, {40, 128, 77, 56, 56, 99, 120});
  const Participant one{&trace, Loop::config()};
  const auto minimum = find_minimum_limit({&one, 1}, kTotal);
  ASSERT_TRUE(minimum);
  const auto orders = replay_orders(one, process, kTotal, kTotal, minimum->limit_bytes), again = replay_orders(one, process, kTotal, kTotal, minimum->limit_bytes);
  ASSERT_TRUE(orders) << orders.error().message;
  EXPECT_EQ(orders->count, kMostOrders);
  EXPECT_EQ(orders->batches, 4u);
  EXPECT_EQ(orders->shapes, 6u);
  EXPECT_EQ(orders->as_run_bytes, trace.peak_reserved_bytes);
  EXPECT_LT(orders->lowest_bytes, orders->highest_bytes);
  EXPECT_LE(orders->lowest_bytes, orders->middle_bytes);
  EXPECT_LE(orders->middle_bytes, orders->highest_bytes);
  EXPECT_GE(orders->limit_bytes, minimum->limit_bytes);
  EXPECT_EQ(orders->middle_bytes, again->middle_bytes);
  EXPECT_EQ(orders->limit_bytes, again->limit_bytes);
  EXPECT_EQ(orders->full, 0);
  const auto tight = replay_orders(one, process, kTotal, trace.peak_reserved_bytes, minimum->limit_bytes);
  ASSERT_TRUE(tight);
  EXPECT_LE(tight->highest_bytes, trace.peak_reserved_bytes) << "no order takes more than there is";
}

TEST(Orders, AJobThatGoesOnIsReplayedForLonger) {
  Loop loop;
  const Trace trace = loop.run({40, 128, 77, 56, 128, 40});
  auto process = recorded(loop, {40, 128, 77, 56});
  process.stop_reason = "stable";
  const Participant one{&trace, Loop::config()};
  const auto orders = replay_orders(one, process, kTotal, kTotal, 0);
  ASSERT_TRUE(orders) << orders.error().message;
  EXPECT_EQ(orders->batches, 64u);
}

TEST(Orders, BatchesThatAreAlikeHaveNone) {
  EXPECT_FALSE(has_orders({}));
  Loop loop;
  const Trace trace = loop.run({40, 40, 40, 40});
  const Participant one{&trace, Loop::config()};
  EXPECT_FALSE(replay_orders(one, recorded(loop, {40, 40}), kTotal, kTotal, 0));
}

}  // namespace
}  // namespace gpumem::allocator
