// SPDX-License-Identifier: Apache-2.0
// estimator/estimate: every rule, from hand-made observations.
#include <gtest/gtest.h>

#include <cstring>

#include "base/file.h"
#include "base/size.h"
#include "estimator/estimate/estimate.h"
#include "estimator/estimate/proof.h"
#include "tests/unit/training_loop.h"

namespace gpumem::estimate {
namespace {

constexpr std::uint64_t kContext = 218 * kMiB;

// One process that trained on device 0 and ended well.
Observation healthy() {
  Observation seen;
  seen.gpu = gpus::find_profile(PROFILES, "RTX 3060").value_or(gpus::Profile{});
  seen.capacity_bytes = seen.gpu.usable_bytes();
  seen.exit_status = 0;
  book::DeviceUse device{};
  device.peak_bytes = 3 * kGiB + kContext;
  seen.book.devices.push_back(device);
  book::ProcessUse process{};
  process.pid = 2;
  std::strcpy(process.comm, "python");
  process.devices[0].context_peak_bytes = kContext;
  process.devices[0].allocated_peak_bytes = 3 * kGiB;
  seen.book.processes.push_back(process);
  record::Process recorded;
  recorded.pid = 2;
  recorded.imported_torch = true;
  recorded.torch = "2.11.0+cu130";
  recorded.cuda = "13.0";
  recorded.cudnn = 91900;
  recorded.tracer = "active";
  recorded.stop_reason = "exit";
  recorded.devices[0] = {2 * kGiB, 3 * kGiB};
  seen.record.processes.push_back(recorded);
  seen.seen_torch.push_back({2, "python", true, true});
  return seen;
}

// The same program, ended with status 1 without having said why.
Observation failed() {
  auto seen = healthy();
  seen.exit_status = 1;
  return seen;
}

bool has_note(const nlohmann::json& estimate, const std::string& part) {
  for (const auto& note : estimate["notes"]) {
    if (note.get<std::string>().find(part) != std::string::npos) return true;
  }
  return false;
}

TEST(Estimate, NeedIsThePeakWithTheContextAndNothingElse) {
  const auto estimate = make_estimate(healthy());
  EXPECT_EQ(estimate["status"], "complete");
  EXPECT_EQ(estimate["need_bytes"], 3 * kGiB + kContext);
  EXPECT_EQ(estimate["context_bytes"], kContext);
  EXPECT_EQ(estimate["minimum_limit_bytes"], 3 * kGiB);
  EXPECT_EQ(estimate["peak_allocated_bytes"], 2 * kGiB);
  EXPECT_EQ(estimate["peak_reserved_bytes"], 3 * kGiB);
  EXPECT_EQ(estimate["cudnn"], "9.19.0 (the job's own)");
  EXPECT_EQ(estimate["confidence"], "high");
  EXPECT_FALSE(estimate.contains("error"));
  EXPECT_TRUE(has_note(estimate, "assumed")) << estimate["notes"];
  EXPECT_EQ(exit_status_of(estimate), 0);
}

// The process of healthy() trained batches of these lengths, and its loader had looked at those.
Observation trained(const std::vector<std::uint32_t>& lengths, const std::vector<std::uint32_t>& looked_at) {
  Observation seen = healthy();
  allocator::Loop loop;
  const allocator::Trace trace = loop.run(lengths);
  const auto differing = allocator::recorded(loop, looked_at);
  auto& process = seen.record.processes[0];
  process.torch = "2.6.0+cu124";
  process.batches = differing.batches;
  process.batch_marks = differing.batch_marks;
  process.knows_allocator = true;
  process.devices[0] = {trace.peak_reserved_bytes / 2, trace.peak_reserved_bytes};
  seen.events = {allocator::events_of(trace)};
  seen.events[0].process = 2;
  seen.book.processes[0].devices[0].allocated_peak_bytes = trace.peak_reserved_bytes;
  seen.book.devices[0].peak_bytes = trace.peak_reserved_bytes + kContext;
  return seen;
}

TEST(Estimate, WithBatchesOfSeveralLengthsItSpeaksOfMoreThanOneOrder) {
  const auto estimate = make_estimate(trained({40, 128, 77, 56}, {40, 128, 77, 56, 99, 120}));
  ASSERT_TRUE(estimate.contains("orders")) << estimate["notes"];
  const auto& orders = estimate["orders"];
  EXPECT_EQ(orders["count"], 128);
  EXPECT_EQ(orders["batches"], 4);
  EXPECT_EQ(estimate["peak_reserved_bytes"], orders["middle_bytes"]);
  EXPECT_EQ(estimate["processes"][0]["devices"][0]["peak_reserved_bytes"], orders["as_run_bytes"]);
  const std::uint64_t need = estimate["need_bytes"], context = estimate["context_bytes"], minimum = estimate["minimum_need_bytes"];
  EXPECT_EQ(need - context, std::max(orders["highest_bytes"].get<std::uint64_t>(), orders["as_run_bytes"].get<std::uint64_t>()));
  EXPECT_LT(minimum, need);
  EXPECT_EQ(estimate["devices"][0]["orders"], orders);
  EXPECT_TRUE(has_note(estimate, "batches have different sizes: in 128 orders of 4 batches PyTorch reserves"));
  // The limit of the order that was run alone is no larger.
  const auto alone = make_estimate(trained({40, 128, 77, 56}, {}));
  EXPECT_FALSE(alone.contains("orders"));
  EXPECT_GE(minimum, alone["minimum_need_bytes"].get<std::uint64_t>());
}

TEST(Estimate, AnOrderThatDoesNotFitTheGpuIsSaid) {
  auto seen = trained({40, 56, 40, 56}, {40, 56, 128, 120});
  seen.capacity_bytes = seen.book.devices[0].peak_bytes;
  const auto estimate = make_estimate(seen);
  ASSERT_TRUE(estimate.contains("orders")) << estimate["notes"];
  EXPECT_GT(estimate["orders"]["out_of_memory"], 0);
  EXPECT_TRUE(has_note(estimate, "of them run out of memory on this GPU"));
  EXPECT_LE(estimate["orders"]["highest_bytes"], seen.book.processes[0].devices[0].allocated_peak_bytes);
  EXPECT_GT(estimate["need_bytes"], seen.capacity_bytes) << "what all orders need, which is more than there is";
}

TEST(Estimate, WhereOtherOrdersCannotBeSaidItSaysWhy) {
  auto seen = trained({40, 128, 77, 56}, {40, 128, 77, 56});
  for (auto& event : seen.events[0].events) {
    if (event.action == record::EventAction::batch) event.action = record::EventAction::snapshot;
  }
  const auto estimate = make_estimate(seen);
  EXPECT_FALSE(estimate.contains("orders"));
  EXPECT_TRUE(has_note(estimate, "only the order that was run was looked at: fewer than two batches were trained"));
}

TEST(Estimate, TheContextIsThatOfTheClosestMeasuredPyTorch) {
  auto seen = healthy();  // 2.11.0+cu130, charged with the largest context before that was known
  const auto measured = [](const char* torch, const char* cuda, std::uint64_t bytes) {
    gpus::Context context;
    context.torch = torch;
    context.cuda = cuda;
    context.warm_bytes = bytes;
    context.source = "measured";
    return context;
  };
  seen.gpu.contexts = {measured("2.6.0+cu124", "12.4", kContext), measured("2.10.0+cu130", "13.0", kContext - 40 * kMiB)};
  seen.gpu.fields["context_bytes"] = {kContext, "measured", ""};
  auto estimate = make_estimate(seen);
  EXPECT_EQ(estimate["context_bytes"], kContext - 40 * kMiB);
  EXPECT_EQ(estimate["context_of_a_process_bytes"], kContext - 40 * kMiB);
  EXPECT_EQ(estimate["need_bytes"], 3 * kGiB + kContext - 40 * kMiB);
  EXPECT_EQ(estimate["minimum_limit_bytes"], 3 * kGiB);
  EXPECT_TRUE(has_note(estimate, "of PyTorch 2.11.0+cu130")) << estimate["notes"];
  EXPECT_TRUE(has_note(estimate, "that of 2.10.0+cu130 was taken"));
  EXPECT_EQ(estimate["confidence"], "high");

  seen.record.processes[0].torch = "2.6.0+cu124";
  seen.record.processes[0].cuda = "12.4";
  estimate = make_estimate(seen);
  EXPECT_EQ(estimate["need_bytes"], 3 * kGiB + kContext);
  EXPECT_FALSE(has_note(estimate, "was taken"));
}

TEST(Estimate, ProcessesThatOverlapAddUpAndThoseThatFollowOneAnotherDoNot) {
  auto seen = healthy();
  auto second = seen.book.processes[0];
  second.pid = 3;
  seen.book.processes.push_back(second);
  auto estimate = make_estimate(seen);
  EXPECT_EQ(estimate["need_bytes"], 3 * kGiB + kContext) << "one after the other: the book saw no more than one at once";
  EXPECT_EQ(estimate["context_bytes"], kContext);

  seen.book.devices[0].peak_bytes = 2 * (3 * kGiB + kContext);
  estimate = make_estimate(seen);
  EXPECT_EQ(estimate["need_bytes"], 2 * (3 * kGiB + kContext));
  EXPECT_EQ(estimate["context_bytes"], 2 * kContext);
  EXPECT_EQ(estimate["peak_reserved_bytes"], 6 * kGiB);
}

TEST(Estimate, TheDeviceWithTheLargestNeedIsTheTopLevel) {
  auto seen = healthy();
  book::DeviceUse larger{};
  larger.peak_bytes = 5 * kGiB + kContext;
  seen.book.devices.push_back(larger);
  seen.book.processes[0].devices[1].context_peak_bytes = kContext;
  seen.book.processes[0].devices[1].allocated_peak_bytes = 5 * kGiB;
  const auto estimate = make_estimate(seen);
  EXPECT_EQ(estimate["need_bytes"], 5 * kGiB + kContext);
  ASSERT_EQ(estimate["devices"].size(), 2u);
  EXPECT_EQ(estimate["devices"][0]["need_bytes"], 3 * kGiB + kContext);
}

TEST(Estimate, AProcessThatNumbersItsDevicesFromZeroIsMatchedToTheDeviceThatItUsed) {
  auto seen = healthy();
  seen.book.devices.insert(seen.book.devices.begin(), book::DeviceUse{});
  seen.book.processes[0].devices[1] = seen.book.processes[0].devices[0];
  seen.book.processes[0].devices[0] = {};
  const auto estimate = make_estimate(seen);
  EXPECT_EQ(estimate["peak_allocated_bytes"], 2 * kGiB) << "CUDA_VISIBLE_DEVICES=1: its device 0 is ours 1";
}

TEST(Estimate, OutOfMemoryThatEndedTheProgramIsOne) {
  auto seen = failed();
  seen.book.processes[0].devices[0].out_of_memory_count = 1;
  seen.book.processes[0].devices[0].out_of_memory_bytes = 50 * kMiB;
  seen.record.processes[0].error = "OutOfMemoryError: CUDA out of memory. Tried to allocate 50.00 MiB.";
  auto estimate = make_estimate(seen);
  EXPECT_EQ(estimate["status"], "out_of_memory");
  EXPECT_NE(estimate["error"].get<std::string>().find("50.0 MiB"), std::string::npos) << estimate["error"];
  EXPECT_EQ(exit_status_of(estimate), 3);
  seen.record.processes[0].error = "";
  EXPECT_EQ(make_estimate(seen)["status"], "out_of_memory") << "a C++ program dies without a word";
}

TEST(Estimate, OutOfMemoryThatTheProgramSurvivedIsANote) {
  auto seen = healthy();
  seen.book.processes[0].devices[0].out_of_memory_count = 2;
  auto estimate = make_estimate(seen);
  EXPECT_EQ(estimate["status"], "complete");
  EXPECT_EQ(estimate["confidence"], "medium");
  EXPECT_TRUE(has_note(estimate, "out of memory"));

  seen.exit_status = 1;
  seen.record.processes[0].error = "KeyError: 'loss'";
  estimate = make_estimate(seen);
  EXPECT_EQ(estimate["status"], "failed") << "it died later, of something else";
  EXPECT_NE(estimate["error"].get<std::string>().find("KeyError"), std::string::npos);
}

TEST(Estimate, HostMemoryIsNeverADeviceOutOfMemory) {
  auto seen = failed();
  seen.book.processes[0].host_failures = 1;
  seen.book.processes[0].host_errno = 12;
  std::strcpy(seen.book.processes[0].host_failure, "address space");
  auto estimate = make_estimate(seen);
  EXPECT_EQ(estimate["status"], "failed");
  EXPECT_EQ(estimate["reason"], "host_failure");
  EXPECT_NE(estimate["error"].get<std::string>().find("does the program set an address-space limit"), std::string::npos) << estimate["error"];
  seen.address_space_limit_bytes = 8 * kGiB;
  EXPECT_NE(make_estimate(seen)["error"].get<std::string>().find("an address-space limit of 8.0 GiB is in force (ulimit -v)"), std::string::npos);
  seen.strict_overcommit = true;
  EXPECT_NE(make_estimate(seen)["error"].get<std::string>().find("vm.overcommit_memory is 2"), std::string::npos);
  seen = failed();
  seen.exit_status = -1;
  seen.memory_exceeded_bytes = 20 * kGiB;
  EXPECT_EQ(make_estimate(seen)["reason"], "host_failure");
}

TEST(Estimate, AFailureQuotesTheProgramsOwnLastWords) {
  auto seen = failed();
  seen.output_tail = "Traceback…\nModuleNotFoundError: No module named 'torch'\n\n";
  const auto estimate = make_estimate(seen);
  EXPECT_EQ(estimate["status"], "failed");
  EXPECT_EQ(estimate["error"], "the program ended with exit status 1: ModuleNotFoundError: No module named 'torch'");
  EXPECT_EQ(estimate["program"]["exit_status"], 1);
  EXPECT_EQ(exit_status_of(estimate), 4);
}

TEST(Estimate, ASignalIsNamed) {
  auto seen = failed();
  seen.exit_status = -1;
  seen.signal = 11;
  const auto estimate = make_estimate(seen);
  EXPECT_EQ(estimate["program"]["signal"], 11);
  EXPECT_NE(estimate["error"].get<std::string>().find("signal 11"), std::string::npos);
}

TEST(Estimate, APythonWithoutOurLibraryIsUnsupportedWhateverItsStatus) {
  for (int status : {0, 1}) {
    auto seen = healthy();
    seen.exit_status = status;
    seen.seen_torch.push_back({5, "python", true, false});
    const auto estimate = make_estimate(seen);
    EXPECT_EQ(estimate["status"], "unsupported");
    EXPECT_EQ(estimate["reason"], "preload_lost");
    EXPECT_EQ(exit_status_of(estimate), 5);
  }
}

TEST(Estimate, ARunOnTheCpuIsNoEstimate) {
  auto seen = healthy();
  seen.book.processes.clear();
  seen.book.devices[0].peak_bytes = 0;
  EXPECT_EQ(make_estimate(seen)["reason"], "no_cuda_use");
  EXPECT_EQ(make_estimate(seen)["need_bytes"], 0);

  seen.seen_torch.clear();
  seen.record.processes[0].cuda = "";
  EXPECT_EQ(make_estimate(seen)["reason"], "cpu_only_torch");
  seen.exit_status = 1;
  EXPECT_EQ(make_estimate(seen)["reason"], "cpu_only_torch") << "'Torch not compiled with CUDA enabled'";

  seen.exit_status = 0;
  seen.record.processes.clear();
  EXPECT_EQ(make_estimate(seen)["reason"], "no_torch");
  seen.seen_torch.push_back({9, "python", false, false});
  EXPECT_EQ(make_estimate(seen)["reason"], "cpu_only_torch") << "seen from outside, where the shim was lost";
}

TEST(Estimate, AMissingFunctionThatWasFatalNamesItAndOneThatWasNotIsANote) {
  auto seen = healthy();
  book::MissingFunction missing{};
  std::strcpy(missing.name, "cudaFancyNewThing");
  seen.book.missing.push_back(missing);
  auto estimate = make_estimate(seen);
  EXPECT_EQ(estimate["status"], "complete");
  EXPECT_EQ(estimate["confidence"], "medium");
  EXPECT_TRUE(has_note(estimate, "cudaFancyNewThing"));
  seen.exit_status = 1;
  estimate = make_estimate(seen);
  EXPECT_EQ(estimate["reason"], "missing_function");
  EXPECT_EQ(estimate["missing_functions"][0], "cudaFancyNewThing");
}

TEST(Estimate, AProcessThatEndedRightAfterItsPeakIsTakenToHaveAllocatedAllThatItReserved) {
  auto seen = healthy();
  seen.record.processes[0].stop_reason = "";
  seen.record.processes[0].devices[0].allocated_is_older = true;
  EXPECT_EQ(make_estimate(seen)["peak_allocated_bytes"], 3 * kGiB);
}

TEST(Proof, ARunThatMadeAsManyStepsHeldAndOneThatWasCutShortDidNot) {
  const auto seen = healthy();
  const auto judged = [&](std::uint64_t first, std::uint64_t second) {
    return judge_proof({{"status", "complete"}, {"steps", first}}, seen, {{"status", "complete"}, {"steps", second}}).passed;
  };
  EXPECT_TRUE(judged(6, 6));
  EXPECT_TRUE(judged(6, 5)) << "equal runs may count one less";
  EXPECT_FALSE(judged(6, 4));
  EXPECT_TRUE(judged(100, 91));
  EXPECT_FALSE(judged(100, 89));
  EXPECT_FALSE(judged(2, 0));
  EXPECT_TRUE(judged(0, 0));
}

TEST(Estimate, ADeadlineKeepsTheFiguresSoFarAtLowConfidence) {
  auto seen = healthy();
  seen.exit_status = -1;
  seen.timed_out = true;
  seen.timeout_s = 60;
  const auto estimate = make_estimate(seen);
  EXPECT_EQ(estimate["status"], "timeout");
  EXPECT_EQ(estimate["reason"], "deadline");
  EXPECT_EQ(estimate["confidence"], "low");
  EXPECT_EQ(estimate["need_bytes"], 3 * kGiB + kContext);
  EXPECT_EQ(exit_status_of(estimate), 124);
}

TEST(Estimate, WithoutASandboxNothingWasRun) {
  auto seen = healthy();
  seen.no_sandbox_step = "creating namespaces: Operation not permitted";
  const auto estimate = make_estimate(seen);
  EXPECT_EQ(estimate["reason"], "no_sandbox");
  EXPECT_NE(estimate["error"].get<std::string>().find("--no-sandbox"), std::string::npos);
}

TEST(Estimate, WhatWasShortenedOrGuessedLowersConfidenceAndIsNamed) {
  auto seen = healthy();
  seen.record.processes[0].stop_reason = "stable";
  seen.record.processes[0].steps = 12;
  auto estimate = make_estimate(seen);
  EXPECT_EQ(estimate["confidence"], "medium");
  EXPECT_TRUE(estimate["stopped_early"].get<bool>());
  EXPECT_TRUE(has_note(estimate, "12 optimizer steps"));

  seen = healthy();
  seen.record.processes[0].notes.push_back({"guess-size", "a size was guessed"});
  EXPECT_EQ(make_estimate(seen)["confidence"], "medium");
  seen.record.processes[0].notes[0].kind = "guess-scalar";
  EXPECT_EQ(make_estimate(seen)["confidence"], "high") << "a loss that is printed harms nothing";
  EXPECT_TRUE(has_note(make_estimate(seen), "a size was guessed"));
}

TEST(Estimate, AnOldCudnnSaysWhoPlanned) {
  auto seen = healthy();
  seen.record.processes[0].cudnn = 90100;
  EXPECT_EQ(make_estimate(seen)["confidence"], "medium");
  EXPECT_TRUE(has_note(make_estimate(seen), "9.1.0"));
  seen.own_cudnn = true;
  EXPECT_EQ(make_estimate(seen)["confidence"], "high");
  EXPECT_NE(make_estimate(seen)["cudnn"].get<std::string>().find("gpumem"), std::string::npos);
}

TEST(Estimate, BytesThatAreNotTextDoNotBreakTheAnswer) {
  auto seen = failed();
  seen.output_tail = "caf\xe9 \xff\xfe\n";
  seen.has_output_tail = true;
  const auto text = make_estimate(seen).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  EXPECT_TRUE(nlohmann::json::accept(text));
}

}  // namespace
}  // namespace gpumem::estimate
