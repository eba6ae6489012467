// SPDX-License-Identifier: Apache-2.0
// estimator/meter: the preloaded library in front of a fake CUDA, seen through the job's book.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/size.h"
#include "base/subprocess.h"
#include "estimator/book/book.h"

extern char** environ;

namespace gpumem {
namespace {

constexpr std::uint64_t kContext = 100 * kMiB;

class MeterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = *make_temporary_directory(::testing::TempDir(), "meter");
    book_path_ = directory_ + "/book";
  }
  void TearDown() override { ASSERT_TRUE(remove_tree(directory_).ok()); }

  void make_book(std::uint64_t limit_bytes) {
    book::DeviceDescription device = {};
    std::strcpy(device.name, "NVIDIA GeForce RTX 3060");
    char error[256] = "";
    ASSERT_EQ(book::create(book_path_.c_str(), &device, 1, book::Accounting::meter, 0600, error, sizeof error), book::Status::ok) << error;
    book::Book book;
    ASSERT_EQ(book::open(&book, book_path_.c_str(), true, error, sizeof error), book::Status::ok) << error;
    ASSERT_EQ(book::set_job_limit(&book, "77", 0, limit_bytes), book::Status::ok);
    book::close(&book);
  }

  book::JobUse::Device use() {
    book::Book book;
    char error[256] = "";
    EXPECT_EQ(book::open(&book, book_path_.c_str(), true, error, sizeof error), book::Status::ok) << error;
    book::reclaim(&book);
    book::JobUse job = {};
    EXPECT_EQ(book::job_use(&book, "77", &job), book::Status::ok);
    book::close(&book);
    return job.devices[0];
  }

  std::string run(std::vector<std::string> steps, bool metered = true) {
    SubprocessOptions options;
    options.arguments = {PROGRAM_DIR "/meter_program"};
    options.arguments.insert(options.arguments.end(), steps.begin(), steps.end());
    for (char** entry = environ; *entry; ++entry) options.environment.push_back(*entry);
    options.environment.push_back("LD_PRELOAD=" METER_LIBRARY " " PROGRAM_DIR "/libfake_cuda.so");
    options.environment.push_back("GPUMEM_JOB=77");
    options.environment.push_back("GPUMEM_METER_CONTEXT_BYTES=" + std::to_string(kContext));
    if (metered) options.environment.push_back("GPUMEM_METER_BOOK=" + book_path_);
    auto result = run_subprocess(options);
    EXPECT_TRUE(result.ok());
    EXPECT_EQ(result->error_output, "");
    return result->output;
  }

  std::string directory_, book_path_;
};

TEST_F(MeterTest, PeakIsTheMostHeldAtOnceWithOneContext) {
  make_book(0);
  EXPECT_EQ(run({"alloc:20", "alloc:30", "free", "alloc:10"}), "alloc:20 0\nalloc:30 0\nfree 0\nalloc:10 0\n");
  EXPECT_EQ(use().peak_bytes, kContext + 50 * kMiB);
  EXPECT_EQ(use().used_bytes, 0u);
}

TEST_F(MeterTest, WhatExceedsTheLimitIsOutOfMemoryAndNeverReachesCuda) {
  make_book(kContext + 40 * kMiB);
  EXPECT_EQ(run({"alloc:20", "alloc:30", "calls", "free", "alloc:30"}), "alloc:20 0\nalloc:30 2\ncalls 1\nfree 0\nalloc:30 0\n");
  EXPECT_EQ(use().out_of_memory_count, 1u);
  EXPECT_EQ(use().out_of_memory_bytes, 30 * kMiB);
  EXPECT_EQ(use().peak_bytes, kContext + 30 * kMiB);
}

TEST_F(MeterTest, ARequestThatCudaRefusesIsNotCounted) {
  make_book(0);
  EXPECT_EQ(run({"fail:1", "alloc:500", "fail:0", "alloc:2"}), "fail:1 0\nalloc:500 2\nfail:0 0\nalloc:2 0\n");
  EXPECT_EQ(use().used_bytes, 0u);
}

TEST_F(MeterTest, PhysicalMemoryOfExpandableSegmentsCountsThroughEntryPoints) {
  make_book(kContext + 64 * kMiB);
  EXPECT_EQ(run({"create:20", "create:40", "create:20", "release", "create:20"}),
            "create:20 0\ncreate:40 0\ncreate:20 2\nrelease 0\ncreate:20 0\n");
  EXPECT_EQ(use().peak_bytes, kContext + 60 * kMiB);
}

TEST_F(MeterTest, MemoryInfoShowsTheLimitInPlaceOfTheDevice) {
  make_book(kContext + 1000 * kMiB);
  EXPECT_EQ(run({"alloc:200", "info"}), "alloc:200 0\ninfo 800 1100\n");
  make_directories(directory_).ok();
}

TEST_F(MeterTest, ProcessesOfAJobShareItsLimitAndEachHasAContext) {
  make_book(2 * kContext + 50 * kMiB);
  EXPECT_EQ(run({"alloc:30", "fork:alloc:30", "fork:alloc:20"}), "alloc:30 0\nalloc:30 2\nalloc:20 0\n");
  EXPECT_EQ(use().peak_bytes, 2 * kContext + 50 * kMiB);
}

TEST_F(MeterTest, APeakSurvivesSigkillAndTheMemoryComesBack) {
  make_book(0);
  EXPECT_EQ(run({"alloc:70", "kill"}), "alloc:70 0\n");
  EXPECT_EQ(use().peak_bytes, kContext + 70 * kMiB);
  EXPECT_EQ(use().used_bytes, 0u);
}

TEST_F(MeterTest, APeakSurvivesEveryWayToEndAtOnce) {
  for (const std::string how : {"_exit", "exit_group", "quick_exit", "abort", "exec"}) {
    make_book(0);
    EXPECT_EQ(run({"alloc:30", "create:40", "end:" + how}), "alloc:30 0\ncreate:40 0\n") << how;
    EXPECT_EQ(use().peak_bytes, kContext + 70 * kMiB) << how;
    EXPECT_EQ(use().used_bytes, 0u) << how;
    ASSERT_EQ(::unlink(book_path_.c_str()), 0);
  }
}

// A child that a program forks does not take the parent's account with it when it ends so.
TEST_F(MeterTest, AChildThatEndsAtOnceLeavesItsPeakBesideItsParents) {
  make_book(0);
  EXPECT_EQ(run({"alloc:30", "fork:alloc:50", "alloc:10"}), "alloc:30 0\nalloc:50 0\nalloc:10 0\n");
  EXPECT_EQ(use().peak_bytes, 2 * kContext + 80 * kMiB);
}

// Every allocating function, by every way that a program has to it, on a virtual GPU: programs/meter_calls.cpp.
TEST_F(MeterTest, CountsEveryFunctionOnceHoweverItIsReached) {
  make_book(kContext + 1000 * kMiB);
  const std::string device_book = directory_ + "/device";
  book::DeviceDescription device = {};
  std::strcpy(device.name, "NVIDIA GeForce RTX 3060");
  device.total_bytes = device.usable_bytes = 12ull << 30;
  device.compute_major = 8;
  device.cuda_version = 13000;
  char error[256] = "";
  ASSERT_EQ(book::create(device_book.c_str(), &device, 1, book::Accounting::shared_book, 0600, error, sizeof error), book::Status::ok) << error;
  SubprocessOptions options;
  options.arguments = {PROGRAM_DIR "/meter_calls", VIRTUAL_GPU_DIR};
  for (char** entry = environ; *entry; ++entry) options.environment.push_back(*entry);
  options.environment.push_back("LD_PRELOAD=" METER_LIBRARY " " VIRTUAL_GPU_DIR "/libgpumem_vgpu.so");
  options.environment.push_back("GPUMEM_JOB=77");
  options.environment.push_back("GPUMEM_BOOK=" + device_book);
  options.environment.push_back("GPUMEM_METER_CONTEXT_BYTES=" + std::to_string(kContext));
  options.environment.push_back("GPUMEM_METER_BOOK=" + book_path_);
  auto result = run_subprocess(options);
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result->output.ends_with(" 0 wrong\n")) << result->output << result->error_output;
  EXPECT_EQ(use().used_bytes, 0u);
}

const char* const kAnswered[] = {
#define F(name) #name,
#include "estimator/meter/functions.def"
#undef F
};

// A new CUDA brings functions: those that may take memory must be counted, or be known not to.
TEST(Meter, EveryFunctionThatTakesMemoryIsCountedOrKnownNotTo) {
  const std::regex takes("[Aa]lloc|Create|Import|Reserve|Bind|Open|Expand|Grow|Commit|Prefetch");
  const std::set<std::string> answered(std::begin(kAnswered), std::end(kAnswered));
  std::map<std::string, std::string> not_counted;
#define F(name, reason) not_counted[#name] = reason;
#include "tests/unit/programs/meter_not_counted.def"
#undef F
  std::set<std::string> unused;
  for (const auto& [name, reason] : not_counted) unused.insert(name);
  for (const char* name : {
#define F(name) #name,
#include "estimator/cuda_interface/driver_functions.def"
#include "estimator/cuda_interface/runtime_functions.def"
#undef F
       }) {
    if (!std::regex_search(name, takes)) continue;
    unused.erase(name);
    EXPECT_NE(answered.count(name), not_counted.count(name))
        << name << " may take device memory: count it in estimator/meter, or say in programs/meter_not_counted.def why not";
  }
  EXPECT_TRUE(unused.empty()) << *unused.begin() << " is no function of CUDA";
}

TEST(Meter, ExportsTheFunctionsOfItsTable) {
  void* library = dlopen(METER_LIBRARY, RTLD_LAZY | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  for (const char* name : kAnswered) EXPECT_NE(dlsym(library, name), nullptr) << name << " is missing in exports.map";
}

TEST_F(MeterTest, WithoutABookEveryCallIsPassedOn) {
  EXPECT_EQ(run({"alloc:20", "info", "free", "calls"}, false), "alloc:20 0\ninfo 10240 12288\nfree 0\ncalls 2\n");
}

}  // namespace
}  // namespace gpumem
