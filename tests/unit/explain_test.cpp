// SPDX-License-Identifier: Apache-2.0
// estimator/explain: whose memory it is at the peak, from hand-made events.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/size.h"
#include "estimator/explain/explain.h"
#include "estimator/explain/report.h"

namespace gpumem::explain {
namespace {

using record::EventAction;
using record::EventRecord;

constexpr std::uint16_t kLinear = 1, kMatmulBackward = 2;
constexpr std::uint16_t kRoot = 1, kFirst = 2, kSecond = 3;

// Events of one device, each a millisecond after the one before.
class Events {
 public:
  Events& allocate(std::uint64_t address, std::uint64_t bytes, std::uint16_t op = 0, std::uint16_t module = 0, bool autograd = false) {
    EventRecord& event = add(EventAction::allocate, address, bytes);
    event.op = op;
    event.module = module;
    event.flags = autograd ? record::kEventOnAutogradThread : 0;
    return *this;
  }
  Events& release(std::uint64_t address, std::uint64_t bytes) {
    add(EventAction::free_requested, address, bytes);
    add(EventAction::free_completed, address, bytes);
    return *this;
  }
  Events& segment(std::uint64_t bytes) {
    add(EventAction::segment_allocate, 0, bytes);
    return *this;
  }
  Events& step(std::uint64_t number) {
    add(EventAction::step, 0, number);
    return *this;
  }
  std::vector<EventRecord> list;

 private:
  EventRecord& add(EventAction action, std::uint64_t address, std::uint64_t size) {
    EventRecord event{};
    event.action = action;
    event.address = address;
    event.size = size;
    event.time_ns = list.size() * 1000000;
    list.push_back(event);
    return list.back();
  }
};

record::Process two_blocks() {
  record::Process process;
  process.operators = {{kLinear, "aten::addmm"}, {kMatmulBackward, "aten::mm"}};
  process.modules = {{kRoot, {"GPT", "GPT"}}, {kFirst, {"h.0", "Block"}}, {kSecond, {"h.1", "Block"}}};
  return process;
}

// One training step twice: parameter, two activations, gradient, state; the peak is in the second backward pass.
struct Training {
  Events events;
  record::Process process = two_blocks();

  Training() {
    events.segment(64 * kMiB).allocate(0x1000, 4 * kMiB);  // the parameter
    for (std::uint64_t step = 1; step <= 2; ++step) {
      events.allocate(0x2000, 2 * kMiB, kLinear, kFirst).allocate(0x3000, 3 * kMiB, kLinear, kSecond);
      events.allocate(0x4000, 4 * kMiB, kMatmulBackward, 0, true);  // the gradient
      events.allocate(0x5000, kMiB, kMatmulBackward, 0, true);      // of activations
      events.release(0x5000, kMiB).release(0x3000, 3 * kMiB).release(0x2000, 2 * kMiB);
      if (step == 1) events.allocate(0x6000, 8 * kMiB);  // optimizer state
      events.step(step);
      process.tensors.push_back({step, 0, {0x1000}, {}, {0x4000}, {0x6000}});
      events.release(0x4000, 4 * kMiB);
    }
  }
  Explanation explained() const { return explain(events.list, process, 0); }
};

std::uint64_t bytes_of(const Explanation& explanation, Kind kind) {
  const auto found = explanation.bytes.find(kind);
  return found == explanation.bytes.end() ? 0 : found->second;
}

TEST(Explain, ThePeakIsTakenApartByWhatWasListedAfterTheStep) {
  const auto found = Training().explained();
  EXPECT_TRUE(found.attributed);
  EXPECT_EQ(found.peak.step, 1u);
  EXPECT_EQ(found.peak.allocated_bytes, 22 * kMiB);
  EXPECT_EQ(bytes_of(found, Kind::parameter), 4 * kMiB);
  EXPECT_EQ(bytes_of(found, Kind::gradient), 4 * kMiB);
  EXPECT_EQ(bytes_of(found, Kind::state), 8 * kMiB);
  EXPECT_EQ(bytes_of(found, Kind::activation), 5 * kMiB);
  EXPECT_EQ(bytes_of(found, Kind::at_peak), kMiB);
  EXPECT_EQ(found.cache_bytes(), 42 * kMiB);
  EXPECT_EQ(found.peak_operator, "aten::mm");
}

TEST(Explain, EveryByteAtThePeakHasExactlyOneKind) {
  const auto found = Training().explained();
  std::uint64_t sum = 0;
  for (const auto& [kind, bytes] : found.bytes) sum += bytes;
  EXPECT_EQ(sum, found.peak.allocated_bytes);
}

TEST(Explain, ActivationsAreThoseOfTheirModules) {
  const auto found = Training().explained();
  ASSERT_EQ(found.activations.size(), 2u);
  EXPECT_EQ(found.activations[0].name, "h.1 (Block)");
  EXPECT_EQ(found.activations[0].bytes, 3 * kMiB);
  EXPECT_EQ(found.activations[1].name, "h.0 (Block)");
}

TEST(Explain, RepeatedBlocksAreACandidateForCheckpointing) {
  const auto found = Training().explained();
  ASSERT_FALSE(found.candidates.empty());
  const auto checkpointing = std::find_if(found.candidates.begin(), found.candidates.end(),
                                          [](const Candidate& candidate) { return candidate.word == "checkpointing"; });
  ASSERT_NE(checkpointing, found.candidates.end());
  EXPECT_EQ(checkpointing->saves_bytes, 2 * kMiB);  // 5 MiB, of which the larger block's 3 are there once
  EXPECT_NE(checkpointing->text.find("2 Block in h"), std::string::npos) << checkpointing->text;
}

TEST(Explain, GradientsThatAreZeroedInsteadOfFreedAreNamed) {
  Training freed;
  for (const auto& candidate : freed.explained().candidates) EXPECT_NE(candidate.word, "set_to_none");

  Training zeroed;
  zeroed.events = {};
  zeroed.process.tensors.clear();
  zeroed.events.segment(64 * kMiB).allocate(0x1000, 4 * kMiB);
  for (std::uint64_t step = 1; step <= 3; ++step) {
    zeroed.events.allocate(0x2000, 2 * kMiB, kLinear, kFirst);
    if (step == 1) zeroed.events.allocate(0x4000, 4 * kMiB, kMatmulBackward, 0, true);
    zeroed.events.release(0x2000, 2 * kMiB).step(step);
    zeroed.process.tensors.push_back({step, 0, {0x1000}, {}, {0x4000}, {}});
  }
  const auto found = zeroed.explained();
  EXPECT_EQ(bytes_of(found, Kind::gradient), 4 * kMiB);
  const auto set_to_none = std::find_if(found.candidates.begin(), found.candidates.end(),
                                        [](const Candidate& candidate) { return candidate.word == "set_to_none"; });
  ASSERT_NE(set_to_none, found.candidates.end());
  EXPECT_EQ(set_to_none->saves_bytes, 4 * kMiB);
}

TEST(Explain, WhatAMatrixProductNeverGivesBackIsALibrarysWorkspace) {
  Training training;
  Events with;
  with.allocate(0x9000, 8 * kMiB, kLinear, kFirst).step(0);
  for (const EventRecord& event : training.events.list) with.list.push_back(event);
  const auto found = explain(with.list, training.process, 0);
  EXPECT_EQ(bytes_of(found, Kind::workspace), 8 * kMiB);
  EXPECT_EQ(bytes_of(found, Kind::activation), 5 * kMiB);
}

TEST(Explain, WithoutListsNothingIsClaimedOfParameters) {
  Training training;
  training.process.tensors.clear();
  const auto found = training.explained();
  EXPECT_FALSE(found.attributed);
  EXPECT_EQ(bytes_of(found, Kind::parameter), 0u);
  EXPECT_EQ(bytes_of(found, Kind::kept), 12 * kMiB);  // the parameter and the state
}

TEST(Explain, AReusedAddressIsAnotherBlock) {
  Events events;
  events.allocate(0x1000, kMiB).release(0x1000, kMiB).allocate(0x1000, 2 * kMiB).step(1);
  record::Process process;
  process.tensors.push_back({1, 0, {0x1000}, {}, {}, {}});
  const auto found = explain(events.list, process, 0);
  EXPECT_EQ(found.peak.allocated_bytes, 2 * kMiB);
  EXPECT_EQ(bytes_of(found, Kind::parameter), 2 * kMiB);
}

TEST(Explain, TheTimelineNeverLosesThePeak) {
  Events events;
  for (std::uint64_t i = 0; i < 5000; ++i) events.allocate(0x1000, i == 2345 ? 8 * kMiB : kMiB).release(0x1000, kMiB);
  const auto found = explain(events.list, {}, 0);
  std::uint64_t most = 0;
  for (const Moment& moment : found.timeline) most = std::max(most, moment.allocated_bytes);
  EXPECT_EQ(most, 8 * kMiB);
  EXPECT_LE(found.timeline.size(), 200u);
}

TEST(Explain, NothingAllocatedIsNoPeak) {
  const auto found = explain({}, {}, 0);
  EXPECT_EQ(found.peak.allocated_bytes, 0u);
  EXPECT_TRUE(found.candidates.empty());
}

TEST(Explain, WhatLibrariesTookIsInTheTimelineWhenTheyTookIt) {
  Events events;
  events.segment(8 * kMiB).allocate(0x1000, 8 * kMiB).segment(4 * kMiB).allocate(0x2000, 4 * kMiB).release(0x2000, 4 * kMiB).release(0x1000, 8 * kMiB);
  const std::vector<allocator::Outside> outside = {{500000, 2 * kMiB, true}, {3500000, 6 * kMiB, true}, {4500000, 6 * kMiB, false}, {9000000, 3 * kMiB, true}};
  const auto found = explain(events.list, {}, 0, outside);
  EXPECT_EQ(found.peak.allocated_bytes, 12 * kMiB);
  EXPECT_EQ(found.peak.outside_bytes, 2 * kMiB) << "the six came after the peak";
  EXPECT_EQ(found.device_peak_bytes, 20 * kMiB);
  EXPECT_EQ(found.timeline.front().outside_bytes, 0u);
  EXPECT_EQ(found.timeline.back().outside_bytes, 5 * kMiB);
}

// A kept record of one process with that PyTorch, and what it asked for.
std::string kept_record(const char* torch, const std::vector<EventRecord>& events) {
  std::string folder = (std::filesystem::temp_directory_path() / "gpumem-explain-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return "";
  std::ofstream(folder + "/estimate.json") << "{}";
  std::ofstream(folder + "/process-2.jsonl") << R"({"event": "torch", "t": 0.1, "version": ")" << torch
                                             << R"(", "cuda": "13.0", "cudnn": 91900, "python": "3.11.2", "argv": ["python"], "tracer": "active"})"
                                             << "\n"
                                             << R"({"event": "allocator", "t": 0.2})"
                                             << "\n";
  std::ofstream(folder + "/memory-2.jsonl") << "";  // nothing past PyTorch's allocator
  record::EventHeader header{};
  std::memcpy(header.magic, record::kEventMagic, sizeof header.magic);
  header.version = record::kEventVersion;
  header.record_bytes = sizeof(EventRecord);
  header.process = 2;
  std::ofstream file(folder + "/events-2.bin", std::ios::binary);
  file.write(reinterpret_cast<const char*>(&header), sizeof header);
  file.write(reinterpret_cast<const char*>(events.data()), static_cast<std::streamsize>(events.size() * sizeof(EventRecord)));
  return folder;
}

TEST(Explain, WhereNothingIsSaidOfOtherSettingsTheReasonIs) {
  Events events;
  events.segment(40 * kMiB).allocate(0x1000, 40 * kMiB);
  const auto what_if = [&](const char* torch, std::string* why) {
    const std::string folder = kept_record(torch, events.list);
    const auto found = explain_record(folder);
    std::filesystem::remove_all(folder);
    EXPECT_TRUE(found.ok()) << found.error().message;
    if (!found) return nlohmann::json();
    *why = (*found)["notes"].empty() ? "" : (*found)["notes"].back().get<std::string>();
    return (*found)["processes"][0]["devices"][0]["what_if"];
  };
  const std::string folder = kept_record("2.11.0+cu130", events.list);
  std::filesystem::remove(folder + "/memory-2.jsonl");
  const auto earlier = explain_record(folder);
  std::filesystem::remove_all(folder);
  ASSERT_TRUE(earlier.ok());
  EXPECT_NE((*earlier)["notes"].dump().find("is not in the record: it is of an earlier version"), std::string::npos) << (*earlier)["notes"];
  std::string why;
  EXPECT_EQ(what_if("2.11.0+cu130", &why).size(), 2u);
  EXPECT_EQ(why, "");
  EXPECT_TRUE(what_if("9.9.0+cu200", &why).empty());
  EXPECT_NE(why.find("nothing is said of other settings for process 2 on device 0: the allocator of PyTorch 9.9.0+cu200 is not known"), std::string::npos) << why;
  events.segment(2 * kMiB);  // a segment that nobody asked for: another peak than the model's
  EXPECT_TRUE(what_if("2.11.0+cu130", &why).empty());
  EXPECT_NE(why.find("does not come to the peak that it had"), std::string::npos) << why;
}

}  // namespace
}  // namespace gpumem::explain
