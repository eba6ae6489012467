// SPDX-License-Identifier: Apache-2.0
// daemon/node/: what tasks are given: environments, limits, refusals.
#include "tests/unit/node_fixture.h"

namespace gpumem::node {
namespace {

TEST_F(NodeRole, ATaskOnVirtualGpusGetsBooksMeterAndStandInBeforeItsOwn) {
  start_node();
  const auto environment = must_start(batch());
  EXPECT_EQ(environment.refuse, "");
  EXPECT_EQ(value(environment, "LD_PRELOAD"),
            "/lib/gpumem/libgpumem_meter.so:/lib/gpumem/libgpumem_vgpu.so:/lib/gpumem/libcuda.so.1:/lib/gpumem/libnvidia-ml.so.1:/opt/x.so");
  EXPECT_EQ(value(environment, "PATH"), "/lib/gpumem/bin:/usr/bin:/bin");
  EXPECT_EQ(value(environment, "GPUMEM_JOB"), "17");
  EXPECT_EQ(value(environment, "GPUMEM_BOOK"), settings_.state_directory + "/books/node");
  EXPECT_EQ(value(environment, "GPUMEM_METER_BOOK"), settings_.state_directory + "/jobs/17");
  EXPECT_EQ(value(environment, "CUDA_VISIBLE_DEVICES"), "(unset)") << "Slurm's choice stays";
  EXPECT_NE(value(environment, "GPUMEM_METER_CONTEXT_BYTES"), "(unset)");

  const db::Job running = job();
  EXPECT_EQ(running.limit_mib, 4096u);
  EXPECT_TRUE(running.enforced);
  EXPECT_TRUE(running.is_virtual);
  EXPECT_EQ(running.gpu, kRtx3060);
  EXPECT_EQ(running.device_index, 1);
  EXPECT_FALSE(running.ended_s.has_value());
  struct stat book {};
  ASSERT_EQ(::stat(running.meter_book.c_str(), &book), 0);
  EXPECT_EQ(book.st_mode & 0777, 0600u);
  ASSERT_EQ(::stat((settings_.state_directory + "/books/node").c_str(), &book), 0);
  EXPECT_EQ(book.st_mode & 0777, 0666u);
  ASSERT_EQ(::stat((settings_.state_directory + "/books").c_str(), &book), 0);
  EXPECT_EQ(book.st_mode & 0777, 0711u) << "jobs reach books by name and cannot list them";
}

TEST_F(NodeRole, AStepThatInheritsOurPreloadsDoesNotGetThemTwice) {
  start_node();
  const auto first = must_start(batch());
  JobStart step = batch(17, 101);
  step.step_id = 0;
  step.environment = {"LD_PRELOAD=" + value(first, "LD_PRELOAD"), "PATH=" + value(first, "PATH")};
  const auto second = must_start(step);
  EXPECT_EQ(value(second, "LD_PRELOAD"), value(first, "LD_PRELOAD"));
  EXPECT_EQ(value(second, "PATH"), value(first, "PATH"));
  EXPECT_EQ(value(second, "GPUMEM_METER_BOOK"), value(first, "GPUMEM_METER_BOOK")) << "steps of a job share one book";
}

TEST_F(NodeRole, OnRealGpusOnlyTheMeterIsPreloaded) {
  settings_.virtual_gpus.clear();
  for (const auto& [bus, model] : {std::pair("0000:3b:00.0", "NVIDIA H200"), std::pair("0000:18:00.0", "NVIDIA A10")}) {
    const std::string directory = settings_.proc + "/driver/nvidia/gpus/" + bus;
    ASSERT_TRUE(make_directories(directory).ok());
    ASSERT_TRUE(write_file_atomically(directory + "/information", std::string("Model: \t\t ") + model + "\nGPU UUID: \t GPU-" + bus + "\n").ok());
  }
  start_node();
  ASSERT_EQ(node_->devices().all().size(), 2u);
  const auto environment = must_start(batch());
  EXPECT_EQ(value(environment, "LD_PRELOAD"), "/lib/gpumem/libgpumem_meter.so:/opt/x.so");
  EXPECT_EQ(value(environment, "GPUMEM_BOOK"), "(unset)");
  EXPECT_EQ(value(environment, "PATH"), "(unset)");
  EXPECT_EQ(job().gpu, "NVIDIA H200") << "PCI order, as in Slurm";
  EXPECT_EQ(job().device_uuid, "GPU-0000:3b:00.0");
  EXPECT_FALSE(job().is_virtual);
}

TEST_F(NodeRole, WhatAMeterSawOfCudnnOnRealGpusIsLearned) {
  settings_.virtual_gpus.clear();
  const std::string directory = settings_.proc + "/driver/nvidia/gpus/0000:18:00.0";
  ASSERT_TRUE(make_directories(directory).ok());
  ASSERT_TRUE(write_file_atomically(directory + "/information", "Model: \t NVIDIA A10\nGPU UUID: \t GPU-1\n").ok());
  start_node();
  JobStart start = batch();
  start.gpus = start.visible_devices = "0";
  const std::string seen = value(must_start(start), "GPUMEM_WORKSPACES_SEEN");
  ASSERT_EQ(seen, settings_.state_directory + "/jobs/17.workspaces");
  struct stat file {};
  ASSERT_EQ(::stat(seen.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0600u);
  const std::string line = "NVIDIA A10\t90100\t00000000000000ab\t4096\tconv_forward\n";
  ASSERT_TRUE(write_file_atomically(seen, line + "NVIDIA H200\t90100\t00000000000000ac\t4096\tnot this job's GPU\n").ok());
  must_end(start, 0);
  std::ifstream table(settings_.state_directory + "/workspaces.tsv");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(table), {}), line);
}

TEST_F(NodeRole, VirtualGpusTeachNothing) {
  start_node();
  EXPECT_EQ(value(must_start(batch()), "GPUMEM_WORKSPACES_SEEN"), "(unset)");
}

TEST_F(NodeRole, TheLimitIsSlurmsAllocationNotTheTokens) {
  start_node();
  JobStart start = batch();
  start.token = rewritten("0123456789abcdef0123456789abcdef").token;
  start.shards = "1000";
  const auto environment = must_start(start);
  EXPECT_EQ(job().limit_mib, 1000u);
  EXPECT_FALSE(take(value(environment, "GPUMEM_METER_BOOK"), "17", 0, 0, {1001 * kMiB}));
  EXPECT_TRUE(take(value(environment, "GPUMEM_METER_BOOK"), "17", 0, 0, {1000 * kMiB}));
}

TEST_F(NodeRole, WithoutEnforcementTheMeterOnlyMeasures) {
  settings_.enforce = false;
  start_node();
  const auto environment = must_start(batch());
  EXPECT_TRUE(take(value(environment, "GPUMEM_METER_BOOK"), "17", 0, 0, {5000 * kMiB}));
  must_end(batch(), 0);
  EXPECT_FALSE(job().enforced);
  EXPECT_EQ(job().measured_peak_bytes, 5000 * kMiB);
}

TEST_F(NodeRole, ATokenWithShardsWithoutAnAllocationIsRefusedWithASentence) {
  start_node();
  JobStart start = batch();
  start.token = rewritten("0123456789abcdef0123456789abcdef").token;
  start.shards = "";
  start.gpus = "";
  start.visible_devices = "";
  const auto environment = must_start(start);
  EXPECT_NE(environment.refuse.find("shard:4096"), std::string::npos) << environment.refuse;
  EXPECT_TRUE(environment.set.empty());
  EXPECT_EQ(job().cause, db::Cause::refused);
  EXPECT_TRUE(job().ended_s.has_value());
  must_end(start, kExit1);
  EXPECT_EQ(job().cause, db::Cause::refused) << "the failed task's end changes nothing";
}

TEST_F(NodeRole, AnothersTokenDoesNotMakeATaskRefused) {
  start_node();
  JobStart start = batch();
  start.token = rewritten("0123456789abcdef0123456789abcdef").token;
  start.user_id = ::geteuid() + 1;
  start.shards = start.gpus = start.visible_devices = "";
  const auto environment = must_start(start);
  EXPECT_EQ(environment.refuse, "");
  EXPECT_TRUE(environment.set.empty()) << "no GPU: nothing to do";
}

TEST_F(NodeRole, AStepWithoutGresOfASharedJobSeesNoGpu) {
  start_node();
  JobStart start = batch();
  start.token = rewritten("0123456789abcdef0123456789abcdef").token;
  must_start(start);
  JobStart step = start;
  step.step_id = 0;
  step.pid = 101;
  step.shards = step.gpus = step.visible_devices = "";
  const auto environment = must_start(step);
  EXPECT_EQ(environment.refuse, "");
  EXPECT_EQ(value(environment, "CUDA_VISIBLE_DEVICES"), "");
  EXPECT_EQ(environment.unset, std::vector<std::string>{"GPUMEM_BOOK"});
}

TEST_F(NodeRole, AWholeGpuIsMeasuredWithoutALimit) {
  start_node();
  JobStart start = batch();
  start.shards = "";
  const auto environment = must_start(start);
  EXPECT_FALSE(job().limit_mib.has_value());
  EXPECT_TRUE(take(value(environment, "GPUMEM_METER_BOOK"), "17", 0, 100 * kMiB, {9000 * kMiB}));
  must_end(start, 0);
  EXPECT_EQ(job().measured_peak_bytes, 9100 * kMiB);
  EXPECT_EQ(job().context_bytes, 100 * kMiB);
}

TEST_F(NodeRole, TheExternStepIsNoTask) {
  start_node();
  JobStart start = batch();
  start.step_id = kExternStep;
  EXPECT_TRUE(must_start(start).set.empty());
  must_end(start, 0);
  EXPECT_FALSE(history_->newest_run("c", 17, "n1")->has_value());
}

}  // namespace
}  // namespace gpumem::node
