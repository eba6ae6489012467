// SPDX-License-Identifier: Apache-2.0
// estimator/allocator: the model's rules one by one. That they are PyTorch's is shown by tests/conformance.
#include <gtest/gtest.h>

#include "estimator/allocator/allocator.h"
#include "estimator/allocator/config.h"

namespace gpumem::allocator {
namespace {

constexpr std::uint64_t kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB;

Config config_of(const char* text = "", Version version = {2, 11}) {
  auto config = parse_config(text, version);
  EXPECT_TRUE(config.ok());
  return config.value_or(Config{});
}

struct Model {
  explicit Model(const Config& config = {}, std::uint64_t capacity_bytes = kNoLimit) : gpu(capacity_bytes), allocator(config, gpu) {
    allocator.log_to(&events);
  }
  // The actions since the last call.
  std::vector<Action> actions() {
    std::vector<Action> list;
    for (const auto& event : events) list.push_back(event.action);
    events.clear();
    return list;
  }
  std::uint64_t reserved() const { return allocator.stats().reserved_bytes.current; }
  VirtualGpu gpu;
  Allocator allocator;
  std::vector<Event> events;
};

TEST(AllocatorSizes, RequestsAreRoundedAndSegmentsAreOfThreeKinds) {
  const Config config;
  EXPECT_EQ(Allocator::block_bytes(config, 1), 512u);
  EXPECT_EQ(Allocator::block_bytes(config, 513), 1024u);
  EXPECT_EQ(Allocator::segment_bytes(config, kMiB), 2 * kMiB);
  EXPECT_EQ(Allocator::segment_bytes(config, kMiB + 512), 20 * kMiB);
  EXPECT_EQ(Allocator::segment_bytes(config, 10 * kMiB - 512), 20 * kMiB);
  EXPECT_EQ(Allocator::segment_bytes(config, 10 * kMiB), 10 * kMiB);
  EXPECT_EQ(Allocator::segment_bytes(config, 11 * kMiB - 512), 12 * kMiB);
}

TEST(AllocatorSizes, DivisionsOfPowersOfTwoRoundUp) {
  const Config config = config_of("roundup_power2_divisions:4");
  EXPECT_EQ(Allocator::block_bytes(config, 1200), 1536u);  // too small for four divisions: rounded as always
  EXPECT_EQ(Allocator::block_bytes(config, 1200 * kKiB), 1280 * kKiB);
  EXPECT_EQ(Allocator::block_bytes(config, 2 * kMiB), 2 * kMiB);
  const Config some = config_of("roundup_power2_divisions:[4:8,>:2]");
  EXPECT_EQ(Allocator::block_bytes(some, 1025 * kKiB), 1152 * kKiB);  // below 4 MiB as for 4 MiB
  EXPECT_EQ(Allocator::block_bytes(some, 17 * kMiB), 24 * kMiB);
}

TEST(AllocatorBlocks, SmallRequestsShareASegmentAndMergeAgain) {
  Model model;
  Block* a = model.allocator.allocate(1000, 0);
  Block* b = model.allocator.allocate(2000, 0);
  EXPECT_EQ(model.actions(), (std::vector<Action>{Action::segment_allocate, Action::allocate, Action::allocate}));
  EXPECT_EQ(Allocator::address_of(b), Allocator::address_of(a) + 1024);
  EXPECT_EQ(model.allocator.stats().inactive_splits.current, 1u);
  model.allocator.free(a);
  EXPECT_EQ(model.allocator.stats().inactive_splits.current, 2u);
  model.allocator.free(b);
  EXPECT_EQ(model.allocator.stats().inactive_splits.current, 0u);
  EXPECT_EQ(model.allocator.stats().inactive_split_bytes.current, 0u);
  EXPECT_EQ(model.reserved(), 2 * kMiB);
  model.allocator.empty_cache();
  EXPECT_EQ(model.reserved(), 0u);
}

TEST(AllocatorBlocks, TheSmallestThatFitsIsTakenAndStreamsShareNothing) {
  Model model;
  Block* large = model.allocator.allocate(40 * kMiB, 0);
  Block* medium = model.allocator.allocate(30 * kMiB, 0);
  const auto address = Allocator::address_of(medium);
  model.allocator.free(large);
  model.allocator.free(medium);
  Block* other = model.allocator.allocate(30 * kMiB, 7);
  EXPECT_EQ(model.reserved(), 100 * kMiB);
  EXPECT_NE(Allocator::address_of(other), address);
  EXPECT_EQ(Allocator::address_of(model.allocator.allocate(29 * kMiB, 0)), address);
}

TEST(AllocatorBlocks, ALargeBlockKeepsARestOfUpToOneMebibyte) {
  Model model;
  Block* block = model.allocator.allocate(20 * kMiB, 0);
  model.allocator.free(block);
  EXPECT_EQ(Allocator::size_of(model.allocator.allocate(19 * kMiB, 0)), 20 * kMiB);
  EXPECT_EQ(model.allocator.stats().inactive_splits.current, 0u);
}

TEST(AllocatorCapacity, CachedMemoryIsGivenBackBeforeARequestIsRefused) {
  Model model({}, 100 * kMiB);
  Block* first = model.allocator.allocate(60 * kMiB, 0);
  model.allocator.free(first);
  Block* second = model.allocator.allocate(80 * kMiB, 0);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(model.allocator.stats().retries, 1u);
  model.events.clear();
  EXPECT_EQ(model.allocator.allocate(30 * kMiB, 0), nullptr);
  EXPECT_EQ(model.actions(), (std::vector<Action>{Action::out_of_memory}));
  EXPECT_NE(model.allocator.allocate(20 * kMiB, 0), nullptr);
}

TEST(AllocatorCapacity, AFractionLimitsSegments) {
  Model model;
  model.allocator.set_memory_fraction(0.5);  // of 16 GiB
  EXPECT_NE(model.allocator.allocate(5 * kGiB, 0), nullptr);
  EXPECT_EQ(model.allocator.allocate(4 * kGiB, 0), nullptr);
  EXPECT_EQ(model.allocator.stats().out_of_memory, 1u);
}

TEST(AllocatorSettings, OversizeBlocksAreNeverSplitAndGivenBackFirst) {
  Model model(config_of("max_split_size_mb:64"), 300 * kMiB);
  Block* oversize = model.allocator.allocate(200 * kMiB, 0);
  model.allocator.free(oversize);
  Block* small = model.allocator.allocate(30 * kMiB, 0);  // not from the oversize block
  EXPECT_EQ(model.reserved(), 230 * kMiB);
  model.actions();
  Block* middle = model.allocator.allocate(150 * kMiB, 0);  // 50 MiB smaller: too much to waste
  ASSERT_NE(middle, nullptr);
  EXPECT_EQ(model.actions(), (std::vector<Action>{Action::segment_free, Action::segment_allocate, Action::allocate}));
  EXPECT_EQ(model.allocator.stats().retries, 0u);
  model.allocator.free(small);
  model.allocator.free(middle);
  EXPECT_EQ(Allocator::size_of(model.allocator.allocate(131 * kMiB, 0)), 150 * kMiB);
}

TEST(AllocatorSettings, GarbageCollectionFreesWhatIsOldWithAFraction) {
  Config config = config_of("garbage_collection_threshold:0.5");
  Model model(config);
  model.allocator.set_memory_fraction(1.0 / 16);  // 1 GiB
  Block* blocks[4];
  for (auto& block : blocks) block = model.allocator.allocate(150 * kMiB, 0);
  for (auto* block : blocks) model.allocator.free(block);
  EXPECT_EQ(model.reserved(), 600 * kMiB);
  model.events.clear();
  ASSERT_NE(model.allocator.allocate(160 * kMiB, 0), nullptr);
  EXPECT_EQ(model.events.front().action, Action::segment_free);
  EXPECT_LT(model.reserved(), 600 * kMiB);
}

TEST(AllocatorSettings, ExpandableSegmentsGrowAndGiveBackWholePieces) {
  Model model(config_of("expandable_segments:True"), 100 * kMiB);
  Block* a = model.allocator.allocate(30 * kMiB, 0);
  EXPECT_EQ(model.actions(), (std::vector<Action>{Action::segment_map, Action::allocate}));
  EXPECT_EQ(model.reserved(), 40 * kMiB);
  Block* b = model.allocator.allocate(30 * kMiB, 0);
  EXPECT_EQ(Allocator::address_of(b), Allocator::address_of(a) + 30 * kMiB);
  EXPECT_EQ(model.reserved(), 60 * kMiB);
  model.allocator.free(a);
  model.actions();
  Block* c = model.allocator.allocate(50 * kMiB, 0);  // 20 MiB of a's are free to go: their piece is mapped at the end
  ASSERT_NE(c, nullptr);
  EXPECT_EQ(model.reserved(), 100 * kMiB);
  const auto actions = model.actions();
  EXPECT_EQ(actions.front(), Action::segment_unmap);
  EXPECT_EQ(actions.back(), Action::allocate);
}

TEST(AllocatorStreams, ABlockOfAnotherStreamIsReusedWhenItsEventHasHappened) {
  class Slow : public VirtualGpu {
   public:
    std::uint64_t record_event(std::uint64_t) override { return ++recorded; }
    bool event_happened(std::uint64_t event) override { return event <= happened; }
    std::uint64_t recorded = 0, happened = 0;
  } gpu;
  Allocator allocator({}, gpu);
  Block* block = allocator.allocate(30 * kMiB, 0);
  const auto address = Allocator::address_of(block);
  allocator.record_stream(block, 5);
  allocator.free(block);
  EXPECT_EQ(allocator.stats().allocated_bytes.current, 0u);
  EXPECT_EQ(allocator.stats().active_bytes.current, 30 * kMiB);
  Block* other = allocator.allocate(30 * kMiB, 0);
  EXPECT_NE(Allocator::address_of(other), address);
  gpu.happened = 1;
  EXPECT_EQ(Allocator::address_of(allocator.allocate(30 * kMiB, 0)), address);
}

TEST(AllocatorStreams, WhatWaitsForAStreamIsWaitedForBeforeARequestIsRefused) {
  Model model({}, 50 * kMiB);
  const auto ticket = model.allocator.free_later(model.allocator.allocate(30 * kMiB, 0));
  EXPECT_NE(model.allocator.allocate(40 * kMiB, 0), nullptr);
  model.allocator.complete(ticket);  // long since: nothing happens
  EXPECT_EQ(model.allocator.stats().active_bytes.current, 40 * kMiB);
}

TEST(AllocatorPools, APrivatePoolKeepsItsMemoryUntilItIsReleased) {
  Model model;
  model.allocator.use_pool(1);
  Block* block = model.allocator.allocate(30 * kMiB, 0, 1);
  model.allocator.free(block);
  EXPECT_NE(model.allocator.allocate(30 * kMiB, 0), nullptr);
  EXPECT_EQ(model.reserved(), 60 * kMiB);
  model.allocator.empty_cache();
  EXPECT_EQ(model.reserved(), 60 * kMiB);
  model.allocator.release_pool(1);
  model.allocator.empty_cache();
  EXPECT_EQ(model.reserved(), 30 * kMiB);
}

TEST(AllocatorPools, NothingIsGivenBackWhileACaptureIsUnderWay) {
  Model model({}, 100 * kMiB);
  model.allocator.free(model.allocator.allocate(60 * kMiB, 0));
  model.allocator.begin_capture();
  EXPECT_EQ(model.allocator.allocate(80 * kMiB, 0, 1), nullptr);
  model.allocator.end_capture();
  EXPECT_NE(model.allocator.allocate(80 * kMiB, 0, 1), nullptr);
}

TEST(AllocatorConfig, SettingsAreReadAsTheVersionReadsThem) {
  const Config config = config_of("expandable_segments:True, max_split_size_mb:128,garbage_collection_threshold:0.8,backend:native");
  EXPECT_TRUE(config.expandable_segments);
  EXPECT_EQ(config.max_split_bytes, 128 * kMiB);
  EXPECT_DOUBLE_EQ(config.garbage_collection_threshold, 0.8);
  EXPECT_EQ(config_of("max_non_split_rounding_mb:64").max_non_split_rounding_bytes, 64 * kMiB);
  EXPECT_EQ(config_of("large_segment_size_mb:40").large_segment_bytes, 40 * kMiB);
  for (const char* wrong : {"max_split_size_mb:19", "max_split_size_mb", "max_split_size_mb:x", "garbage_collection_threshold:1.0", "unheard_of:1",
                            "expandable_segments:true", "roundup_power2_divisions:3", "roundup_power2_divisions:[", "roundup_power2_divisions:[4",
                            "backend:mine", "max_split_size_mb:[", ":", "max_split_size_mb:64 expandable_segments:True"}) {
    EXPECT_FALSE(parse_config(wrong, {2, 11}).ok()) << wrong;
  }
  EXPECT_FALSE(parse_config("large_segment_size_mb:40", {2, 6}).ok());
  EXPECT_FALSE(parse_config("large_segment_size_mb:10", {2, 11}).ok());
  EXPECT_FALSE(parse_config("max_split_size_mb:30,large_segment_size_mb:40", {2, 11}).ok());
  EXPECT_FALSE(parse_config("max_split_size_mb:20", {2, 6}).ok());
  EXPECT_EQ(config_of("roundup_power2_divisions:[4:8,>:2]").roundup_power2_divisions[2], 8u);
  EXPECT_EQ(config_of("roundup_power2_divisions:[4:8,>:2]", {2, 6}).roundup_power2_divisions[2], 2u);
  EXPECT_EQ(config_of("large_segment_size_mb:40").max_non_split_rounding_bytes, 40 * kMiB);
  EXPECT_FALSE(parse_config("max_non_split_rounding_mb:64", {2, 1}).ok());
}

TEST(AllocatorConfig, TheOlderVariableComesFirstAndOldVersionsKnowNoOther) {
  EXPECT_TRUE(config_from_environment("expandable_segments:True", "expandable_segments:False", {2, 11}).value_or(Config{}).expandable_segments);
  EXPECT_TRUE(config_from_environment(std::nullopt, "expandable_segments:True", {2, 11}).value_or(Config{}).expandable_segments);
  EXPECT_FALSE(config_from_environment(std::nullopt, "expandable_segments:True", {2, 6}).value_or(Config{}).expandable_segments);
  EXPECT_FALSE(config_from_environment(std::nullopt, "expandable_segments:True", {2, 8}).value_or(Config{}).expandable_segments);
}

TEST(AllocatorConfig, VersionsAreReadFromTheirNames) {
  EXPECT_EQ(parse_version("2.6.0+cu124").value_or(Version{}), (Version{2, 6}));
  EXPECT_EQ(parse_version("2.11.0").value_or(Version{}), (Version{2, 11}));
  for (const char* wrong : {"", "2", "2.", "x.y", "two"}) EXPECT_FALSE(parse_version(wrong).ok()) << wrong;
  EXPECT_TRUE(is_known_version({2, 11}));
  EXPECT_FALSE(is_known_version({1, 13}));
}

}  // namespace
}  // namespace gpumem::allocator
