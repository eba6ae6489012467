// SPDX-License-Identifier: Apache-2.0
// estimator/allocator: recorded events to requests, their replays, and the minimum limit; estimator/record: the events' reader.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>

#include "estimator/allocator/replay.h"
#include "estimator/estimate/proof.h"

namespace gpumem::allocator {
namespace {

using record::EventAction;
using record::EventRecord;
constexpr std::uint64_t kMiB = 1u << 20;

struct Recording {
  record::EventFile file;
  void add(EventAction action, std::uint64_t address, std::uint64_t size = 0, std::uint8_t pool = 0, int device = 0) {
    file.events.push_back({action, static_cast<std::int8_t>(device), 0, pool, 0, 0, 0, address, size, file.events.size()});
  }
  void free(std::uint64_t address, std::uint64_t size) {
    add(EventAction::free_requested, address, size);
    add(EventAction::free_completed, address, size);
  }
};

// 60 MiB, then 100 MiB in their place: the cache keeps both segments where there is room.
Recording two_sizes() {
  Recording recording;
  recording.add(EventAction::segment_allocate, 0x1000, 60 * kMiB);
  recording.add(EventAction::allocate, 0x1000, 60 * kMiB);
  recording.free(0x1000, 60 * kMiB);
  recording.add(EventAction::segment_allocate, 0x2000, 100 * kMiB);
  recording.add(EventAction::allocate, 0x2000, 100 * kMiB);
  recording.free(0x2000, 100 * kMiB);
  return recording;
}

TEST(Requests, AllocationsAndFreesAreRequestsAndSegmentsAreNot) {
  const auto traces = traces_of(two_sizes().file);
  ASSERT_EQ(traces.size(), 1u);
  const Trace& trace = traces.at(0);
  ASSERT_EQ(trace.requests.size(), 4u);
  EXPECT_EQ(trace.requests[1].kind, Request::Kind::free);
  EXPECT_EQ(trace.slots, 1u) << "the slot is used again";
  EXPECT_EQ(trace.peak_reserved_bytes, 160 * kMiB);
  EXPECT_EQ(trace.peak_requested_bytes, 100 * kMiB);
  EXPECT_EQ(trace.unknown, 0u);
}

TEST(Requests, AFreeThatIsCompletedLaterIsTwoRequests) {
  Recording recording;
  recording.add(EventAction::allocate, 0x1000, kMiB);
  recording.add(EventAction::free_requested, 0x1000, kMiB);
  recording.add(EventAction::allocate, 0x2000, kMiB);
  recording.add(EventAction::free_completed, 0x1000, kMiB);
  const Trace trace = traces_of(recording.file).at(0);
  ASSERT_EQ(trace.requests.size(), 4u);
  EXPECT_EQ(trace.requests[1].kind, Request::Kind::free_later);
  EXPECT_EQ(trace.requests[3].kind, Request::Kind::complete);
}

TEST(Requests, AFreeThatWaitedForAStreamIsNotOneAtOnceHoweverShortItWas) {
  Recording recording;
  recording.add(EventAction::allocate, 0x1000, kMiB);
  recording.free(0x1000, kMiB);
  EXPECT_FALSE(crosses_streams(traces_of(recording.file).at(0)));
  recording.file.events.back().flags = record::kEventWaited;
  const Trace trace = traces_of(recording.file).at(0);
  EXPECT_TRUE(crosses_streams(trace));
  ASSERT_EQ(trace.requests.size(), 3u);
  EXPECT_EQ(trace.requests[1].kind, Request::Kind::free_later);
}

// A prefetcher: each batch is used by another stream than its own.
TEST(Replay, ADeviceThatLagsTakesMoreCacheAndNoLargerLimit) {
  Recording recording;
  recording.add(EventAction::segment_allocate, 0x1000, 40 * kMiB);
  for (int batch = 0; batch < 3; ++batch) {
    recording.add(EventAction::allocate, 0x1000, 40 * kMiB);
    recording.free(0x1000, 40 * kMiB);
    recording.file.events.back().flags = record::kEventWaited;
  }
  const Trace trace = traces_of(recording.file).at(0);
  const Participant participant{&trace, {}};
  constexpr std::uint64_t kTotal = std::uint64_t{1} << 34;
  EXPECT_TRUE(reproduces(participant, kTotal));
  ReplayOptions lagging;
  lagging.lag_allocations = kLagAllocations;
  EXPECT_EQ(replay({&participant, 1}, lagging).peak_device_bytes, 120 * kMiB) << "nothing has come back yet";
  lagging.lag_allocations = 2;
  EXPECT_EQ(replay({&participant, 1}, lagging).peak_device_bytes, 80 * kMiB) << "one batch behind";
  const auto minimum = find_minimum_limit({&participant, 1}, kTotal);
  ASSERT_TRUE(minimum.has_value());
  EXPECT_EQ(minimum->limit_bytes, 40 * kMiB);
  EXPECT_TRUE(passes_lagging({&participant, 1}, kTotal, 40 * kMiB)) << "before it runs out, PyTorch waits";
  EXPECT_FALSE(passes_lagging({&participant, 1}, kTotal, 38 * kMiB));
}

TEST(Requests, WhatFitsNothingIsCountedAndDevicesAreKeptApart) {
  Recording recording;
  recording.add(EventAction::free_requested, 0x1000, kMiB);
  recording.add(EventAction::allocate, 0x1000, kMiB);
  recording.add(EventAction::allocate, 0x1000, kMiB);
  recording.add(EventAction::free_completed, 0x9000, kMiB);
  recording.add(EventAction::allocate, 0x1000, kMiB, 0, 1);
  const auto traces = traces_of(recording.file);
  EXPECT_EQ(traces.at(0).unknown, 3u);
  EXPECT_EQ(traces.at(1).unknown, 0u);
}

TEST(Requests, SegmentsGivenBackAreOneEmptyCacheAndReleaseTheirPool) {
  Recording recording = two_sizes();
  recording.add(EventAction::segment_free, 0x1000, 60 * kMiB);
  recording.add(EventAction::segment_free, 0x2000, 100 * kMiB);
  EXPECT_EQ(traces_of(recording.file).at(0).requests.back().kind, Request::Kind::empty_cache);
  EXPECT_EQ(traces_of(recording.file).at(0).requests.size(), 5u);
}

TEST(Replay, TheMinimumLimitIsWhatTheRequestsNeedWithoutTheirCache) {
  const Trace trace = traces_of(two_sizes().file).at(0);
  const Participant participant{&trace, {}};
  EXPECT_TRUE(reproduces(participant, 16ull << 30));
  const auto minimum = find_minimum_limit(std::span(&participant, 1), 16ull << 30);
  ASSERT_TRUE(minimum);
  EXPECT_EQ(minimum->peak_device_bytes, 160 * kMiB);
  EXPECT_EQ(minimum->limit_bytes, 100 * kMiB);
  EXPECT_EQ(minimum->retries, 1u);
  ReplayOptions options;
  options.capacity_bytes = 98 * kMiB;
  const auto refused = replay(trace, {}, options);
  EXPECT_TRUE(refused.out_of_memory);
  EXPECT_EQ(refused.failed_request, 2u);
  EXPECT_EQ(refused.failed_bytes, 100 * kMiB);
}

TEST(Replay, OtherSettingsAreAskedWithTheSameRequests) {
  const Trace trace = traces_of(two_sizes().file).at(0);
  const auto config = parse_config("expandable_segments:True", {2, 11}).value_or(Config{});
  EXPECT_EQ(replay(trace, config).stats.at(0).reserved_bytes.peak, 100 * kMiB);
}

TEST(Replay, ProcessesShareADeviceAndGiveBackOnlyTheirOwnCache) {
  const Trace trace = traces_of(two_sizes().file).at(0);
  const Participant both[] = {{&trace, {}}, {&trace, {}}};
  const auto minimum = find_minimum_limit(both, 16ull << 30);
  ASSERT_TRUE(minimum);
  EXPECT_EQ(minimum->peak_device_bytes, 320 * kMiB);
  EXPECT_LE(minimum->limit_bytes, 260 * kMiB);
  EXPECT_GE(minimum->limit_bytes, 160 * kMiB);
}

TEST(Replay, ARecordWithGapsOrAnotherPeakIsNotReproduced) {
  Recording recording = two_sizes();
  recording.add(EventAction::segment_allocate, 0x9000, 500 * kMiB);  // for a block that the record lacks
  const Trace other = traces_of(recording.file).at(0);
  EXPECT_FALSE(reproduces({&other, {}}, 16ull << 30));
  recording = two_sizes();
  recording.add(EventAction::free_requested, 0x7777, kMiB);
  const Trace gap = traces_of(recording.file).at(0);
  EXPECT_FALSE(reproduces({&gap, {}}, 16ull << 30));
}

TEST(Replay, AFractionOfTheProgramsOwnIsKept) {
  Recording recording;
  recording.add(EventAction::memory_fraction, 0, std::bit_cast<std::uint64_t>(0.5));
  recording.add(EventAction::allocate, 0x1000, 600 * kMiB);
  const Trace trace = traces_of(recording.file).at(0);
  const Participant participant{&trace, {}};
  EXPECT_TRUE(find_minimum_limit(std::span(&participant, 1), 2048 * kMiB));
  EXPECT_FALSE(find_minimum_limit(std::span(&participant, 1), 1024 * kMiB));
}

TEST(Events, AFileIsReadToItsLastWholeRecord) {
  record::EventHeader header{};
  std::memcpy(header.magic, record::kEventMagic, sizeof header.magic);
  header.version = 1;
  header.record_bytes = sizeof(EventRecord) + 8;  // of a later version
  header.process = 42;
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  EventRecord event{};
  event.address = 7;
  for (int i = 0; i < 2; ++i) bytes += std::string(reinterpret_cast<const char*>(&event), sizeof event) + std::string(8, 'x');
  auto whole = record::parse_events(bytes);
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(whole->process, 42u);
  EXPECT_EQ(whole->events.size(), 2u);
  EXPECT_EQ(whole->events[1].address, 7u);
  EXPECT_FALSE(whole->torn);
  bytes.pop_back();
  auto torn = record::parse_events(bytes);
  ASSERT_TRUE(torn.ok());
  EXPECT_EQ(torn->events.size(), 1u);
  EXPECT_TRUE(torn->torn);
  EXPECT_FALSE(record::parse_events("GPUMEVT1").ok());
  bytes[8] = 9;
  EXPECT_FALSE(record::parse_events(bytes).ok());
}

TEST(Proof, OnlyAProvenLimitBecomesTheNeed) {
  const nlohmann::json made = {{"status", "complete"}, {"confidence", "high"}, {"need_bytes", 2000u}, {"minimum_need_bytes", 1200u}, {"notes", nlohmann::json::array()}};
  auto estimate = made;
  estimate::apply_proof(estimate, {});
  EXPECT_EQ(estimate["need_bytes"], 2000u);
  EXPECT_EQ(estimate["proof"]["result"], "not_asked");
  EXPECT_EQ(estimate["confidence"], "medium");
  estimate = made;
  estimate::apply_proof(estimate, {estimate::ProofResult::proven, {{1200, true, "", 1200, 1}}, ""});
  EXPECT_EQ(estimate["need_bytes"], 1200u);
  EXPECT_TRUE(estimate["notes"].empty());
  EXPECT_EQ(estimate["confidence"], "high");
  estimate = made;
  estimate::apply_proof(estimate, {estimate::ProofResult::proven_at_peak, {{1200, false, "out of memory", 1200, 1}, {2000, true, "", 1900, 1}}, ""});
  EXPECT_EQ(estimate["need_bytes"], 2000u);
  EXPECT_EQ(estimate["notes"].size(), 1u);
  EXPECT_EQ(estimate["confidence"], "high");
  estimate = made;
  estimate::apply_proof(estimate, {estimate::ProofResult::proven_at_peak, {{2000, true, "", 2000, 1}}, ""});
  EXPECT_EQ(estimate["need_bytes"], 2000u);
  EXPECT_TRUE(estimate["notes"].empty()) << "there was nothing lower to try";
  EXPECT_EQ(estimate["confidence"], "high");
  estimate = made;
  estimate::apply_proof(estimate, {estimate::ProofResult::disproven, {{1200, false, "x", 1200, 1}, {2000, false, "x", 2100, 1}}, ""});
  EXPECT_EQ(estimate["need_bytes"], 2100u);
  EXPECT_EQ(estimate["confidence"], "medium");
}

}  // namespace
}  // namespace gpumem::allocator
