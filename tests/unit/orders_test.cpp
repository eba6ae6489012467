// SPDX-License-Identifier: Apache-2.0
// estimator/allocator: batches exchanged in a recorded run, and what other orders of them reserve.
#include <gtest/gtest.h>

#include "estimator/allocator/align.h"
#include "estimator/allocator/orders.h"
#include "estimator/allocator/steps.h"
#include "tests/unit/training_loop.h"

namespace gpumem::allocator {
namespace {

constexpr std::uint64_t kKiB = 1u << 10;

std::vector<Turn> turns_of(Steps& steps, const std::vector<std::uint32_t>& lengths) {
  std::vector<Turn> turns;
  for (const auto length : lengths) turns.push_back({turns.size(), steps.shape(Loop::shape(length)).value_or(-1)});
  return turns;
}

std::uint64_t peak_of(const Trace& trace) { return replay(trace, Loop::config()).peak_device_bytes; }

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
