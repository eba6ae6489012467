// SPDX-License-Identifier: Apache-2.0
// estimator/probe/host_memory: limits of control groups of both versions, from copies of the files that a kernel shows; and what an
// estimate says when the host's memory was the reason.
#include <gtest/gtest.h>

#include <string>

#include "base/file.h"
#include "base/size.h"
#include "estimator/estimate/estimate.h"
#include "estimator/probe/host_memory.h"

namespace gpumem::probe {
namespace {

class HostMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = *make_temporary_directory(::testing::TempDir(), "host_memory");
    write("/proc/meminfo", "MemTotal:       67108864 kB\nMemFree:         1000000 kB\nMemAvailable:   33554432 kB\n");
    write("/proc/vmstat", "nr_free_pages 100\noom_kill 3\noom_kill_else 9\n");
  }
  void TearDown() override { ASSERT_TRUE(remove_tree(root_).ok()); }
  void write(const std::string& path, const std::string& text) {
    const std::string whole = root_ + path;
    ASSERT_TRUE(make_directories(whole.substr(0, whole.rfind('/'))).ok());
    ASSERT_TRUE(write_file_atomically(whole, text, 0600).ok());
  }
  std::string root_;
};

TEST_F(HostMemoryTest, WithoutGroupsItIsTheHosts) {
  const HostMemory memory = look_at_host_memory(root_);
  EXPECT_EQ(memory.total_bytes, 64 * kGiB);
  EXPECT_EQ(memory.available_bytes, 32 * kGiB);
  EXPECT_EQ(memory.group_limit_bytes, 0u);
  EXPECT_EQ(memory.kills, 3u);
}

TEST_F(HostMemoryTest, TheTightestGroupAroundTheProcessCounts) {
  write("/proc/self/cgroup", "0::/user.slice/user-1000.slice/session-3.scope\n");
  write("/proc/self/mountinfo", "25 1 0:22 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
  const std::string user = "/sys/fs/cgroup/user.slice/user-1000.slice";
  write(user + "/session-3.scope/memory.max", "max\n");
  write(user + "/session-3.scope/memory.events", "low 0\noom 1\noom_kill 1\noom_group_kill 0\n");
  write(user + "/memory.max", "2147483648\n");
  write(user + "/memory.current", "1073741824\n");
  write(user + "/memory.stat", "anon 500000000\nfile 573741824\ninactive_file 268435456\n");
  write("/sys/fs/cgroup/user.slice/memory.max", "8589934592\n");
  write("/sys/fs/cgroup/user.slice/memory.current", "1073741824\n");
  const HostMemory memory = look_at_host_memory(root_);
  EXPECT_EQ(memory.group_limit_bytes, 2 * kGiB);
  EXPECT_EQ(memory.total_bytes, 2 * kGiB);
  EXPECT_EQ(memory.available_bytes, kGiB + 256 * kMiB) << "pages of files that nobody used lately can be had";
  EXPECT_EQ(memory.kills, 4u);
}

TEST_F(HostMemoryTest, VersionOneIsReadWhereMemoryIsThere) {
  write("/proc/self/cgroup", "7:freezer:/\n4:cpu,memory:/slurm/uid_7/job_1\n0::/\n");
  write("/proc/self/mountinfo", "30 1 0:27 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n"
                                "31 1 0:28 /slurm /sys/fs/cgroup/memory rw - cgroup cgroup rw,cpu,memory\n"
                                "32 1 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  const std::string job = "/sys/fs/cgroup/memory/uid_7/job_1";
  write(job + "/memory.limit_in_bytes", "4294967296\n");
  write(job + "/memory.usage_in_bytes", "1073741824\n");
  write(job + "/memory.stat", "inactive_file 5\ntotal_inactive_file 0\n");
  write(job + "/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  const HostMemory memory = look_at_host_memory(root_);
  EXPECT_EQ(memory.group_limit_bytes, 4 * kGiB);
  EXPECT_EQ(memory.available_bytes, 3 * kGiB);
  EXPECT_EQ(memory.kills, 5u);
}

TEST_F(HostMemoryTest, AFullGroupLeavesNothing) {
  write("/proc/self/cgroup", "0::/\n");
  write("/proc/self/mountinfo", "25 1 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  write("/sys/fs/cgroup/memory.max", "1000000000\n");
  write("/sys/fs/cgroup/memory.current", "1000001000\n");
  EXPECT_EQ(look_at_host_memory(root_).available_bytes, 0u);
  write("/sys/fs/cgroup/memory.max", "99999999999999\n");  // more than the host has
  EXPECT_EQ(look_at_host_memory(root_).group_limit_bytes, 0u);
}

std::string error_of(const estimate::Observation& seen) {
  const auto made = estimate::make_estimate(seen);
  EXPECT_EQ(made["reason"], "host_failure");
  return made["error"];
}

TEST(HostMemory, WhatTheKernelEndedIsNoFailureOfTheProgram) {
  estimate::Observation seen;
  seen.gpu.name = "NVIDIA H200";
  seen.exit_status = 137;
  seen.kernel_kills = 1;
  EXPECT_NE(error_of(seen).find("the host's memory (not the GPU's) ran out"), std::string::npos);
  seen.memory_group_limit_bytes = 2 * kGiB;
  EXPECT_NE(error_of(seen).find("this session may use 2.0 GiB (its control group's memory limit)"), std::string::npos);
  seen.memory_exceeded_bytes = 3 * kGiB / 2;
  seen.memory_allowed_bytes = kGiB;
  EXPECT_NE(error_of(seen).find("took 1.5 GiB of the host's memory (not the GPU's), more than the 1.0 GiB"), std::string::npos);
  seen.exit_status = 0;
  seen.memory_exceeded_bytes = 0;
  EXPECT_NE(estimate::make_estimate(seen)["reason"], "host_failure") << "somebody else's process was ended";
}

}  // namespace
}  // namespace gpumem::probe
