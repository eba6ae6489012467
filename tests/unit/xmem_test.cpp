// SPDX-License-Identifier: Apache-2.0
// xMem's rules on sequences made by hand (estimator/xmem/rebuild.h), and the reader of recorded ones.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include <unistd.h>

#include "base/file.h"
#include "estimator/xmem/rebuild.h"
#include "estimator/xmem/sequence.h"

namespace gpumem::xmem {
namespace {

using Kind = SequenceKind;

// A program on the CPU, event by event.
class Program {
 public:
  void mark(Kind kind, std::uint64_t first = 0, std::uint64_t second = 0) { events_.push_back({kind, {}, first, second}); }
  std::uint64_t allocate(std::uint64_t bytes) {
    mark(Kind::allocate, next_address_ += 4096, bytes);
    sizes_[next_address_] = bytes;
    return next_address_;
  }
  void release(std::uint64_t address) { mark(Kind::release, address, sizes_[address]); }

  template <typename Body>
  void op(std::uint64_t sequence, Body body, std::uint64_t role = 0) {
    const std::uint64_t number = events_.size();
    mark(Kind::op_begin, sequence, role);
    body();
    mark(Kind::op_end, number);
  }
  // The engine's frame, which has no number, and the backward function in it; `after` runs in the frame alone.
  template <typename Body, typename After>
  void backward(std::uint64_t sequence, Body body, After after) {
    op(kNoSequence, [&] { op(sequence, body, kBackwardNode); after(); }, kBackwardNodeAround);
  }
  template <typename Body>
  void module(std::uint64_t number, Body body, bool is_loss = false) {
    mark(Kind::module_begin, number, is_loss);
    body();
    mark(Kind::module_end, number);
  }
  void step(std::vector<std::uint64_t> temporaries = {}) {
    mark(Kind::step_begin);
    for (const auto bytes : temporaries) release(allocate(bytes));
    mark(Kind::step_end);
  }

  Rebuilt rebuilt() const {
    auto result = rebuild(events_);
    EXPECT_TRUE(result.ok());
    return result.ok() ? *result : Rebuilt{};
  }
  const std::vector<SequenceEvent>& events() const { return events_; }

 private:
  std::vector<SequenceEvent> events_;
  std::map<std::uint64_t, std::uint64_t> sizes_;
  std::uint64_t next_address_ = 0;
};

std::uint64_t peak(const Rebuilt& rebuilt) {
  std::uint64_t live = 0, most = 0;
  for (const auto& request : rebuilt.requests) {
    live = request.allocate ? live + request.bytes : live - request.bytes;
    most = std::max(most, live);
  }
  return most;
}

std::uint64_t allocations(const Rebuilt& rebuilt, std::uint64_t bytes) {
  std::uint64_t count = 0;
  for (const auto& request : rebuilt.requests) count += request.allocate && request.bytes == bytes;
  return count;
}

// One iteration of a layer that keeps an activation of 100, makes a gradient of 64, and has scratch of 7 forwards and 9 backwards.
struct Layer {
  std::uint64_t gradient = 0;
  void run(Program& program, std::uint64_t sequence, std::uint64_t iteration, std::vector<std::uint64_t> in_step = {}) {
    program.mark(Kind::iteration, iteration);
    program.mark(Kind::zero_grad_begin);
    if (gradient != 0) program.release(gradient);
    program.mark(Kind::zero_grad_end);
    program.mark(Kind::data, 32);
    std::uint64_t activation = 0;
    program.module(1, [&] {
      program.op(sequence, [&] {
        const auto scratch = program.allocate(7);
        activation = program.allocate(100);
        program.release(scratch);
      });
    });
    program.backward(
        sequence,
        [&] {
          const auto scratch = program.allocate(9);
          gradient = program.allocate(64);
          program.release(scratch);
        },
        [&] { program.release(activation); });
    program.step(in_step);
  }
};

Program three_iterations(std::vector<std::uint64_t> in_step = {}) {
  Program program;
  program.mark(Kind::parameter, 64);
  Layer layer;
  for (std::uint64_t i = 0; i < 3; ++i) layer.run(program, 10 + i, i, in_step);
  return program;
}

TEST(Rebuild, WhatDiesInsideAnOperatorIsInternalToIt) {
  const Rebuilt rebuilt = three_iterations().rebuilt();
  EXPECT_EQ(allocations(rebuilt, 7), 0u);
  EXPECT_EQ(allocations(rebuilt, 9), 0u);
}

TEST(Rebuild, TheFirstIterationOnlyWarmsUp) {
  const Rebuilt rebuilt = three_iterations().rebuilt();
  EXPECT_EQ(rebuilt.iterations, 3);
  EXPECT_EQ(allocations(rebuilt, 100), 2u);
  EXPECT_EQ(allocations(rebuilt, 64), 3u);  // the parameter, and two gradients
}

TEST(Rebuild, BackwardMemoryIsFoundBySequenceNumberAndTheEnginesFrameCounts) {
  // The gradient is allocated in the backward function; only the frame around it has ended after it was.
  Program program;
  program.mark(Kind::parameter, 64);
  program.mark(Kind::iteration);
  program.module(1, [&] { program.op(5, [&] { program.allocate(100); }); });
  std::uint64_t sum = 0;
  program.backward(5, [] {}, [&] { sum = program.allocate(640); });  // accumulated in the frame alone
  program.step();
  const Rebuilt rebuilt = program.rebuilt();
  EXPECT_EQ(allocations(rebuilt, 640), 1u);
  EXPECT_EQ(rebuilt.gradient_bytes, 640u);
}

TEST(Rebuild, GradientsLiveUntilTheNextZeroGrad) {
  const Rebuilt rebuilt = three_iterations().rebuilt();
  // Parameter, data of B, activation of B and gradient of B; A's gradient is gone before B's forward.
  EXPECT_EQ(peak(rebuilt), 64u + 32 + 100 + 64);
  EXPECT_EQ(rebuilt.gradient_bytes, 64u);
}

TEST(Rebuild, GradientsThatNothingReleasesEndAtTheLastIterationsZeroGrad) {
  Program program;
  program.mark(Kind::parameter, 64);
  for (std::uint64_t i = 0; i < 3; ++i) {
    program.mark(Kind::iteration, i);
    program.mark(Kind::zero_grad_begin);  // set_to_none=False: memory stays on the CPU
    program.mark(Kind::zero_grad_end);
    program.module(1, [&] { program.op(10 + i, [&] { program.allocate(100); }); });
    program.backward(10 + i, [&] { program.allocate(64); }, [] {});
    program.step();
  }
  // Both activations live on; of the gradients one at a time.
  EXPECT_EQ(peak(program.rebuilt()), 64u + 100 + 64 + 100);
}

TEST(Rebuild, OptimizerStateIsWhateverHasAParametersSize) {
  const Rebuilt rebuilt = three_iterations({64, 5, 64}).rebuilt();
  EXPECT_EQ(rebuilt.optimizer_bytes, 128u);
  EXPECT_EQ(allocations(rebuilt, 5), 0u);
  // What is kept of A, and B's own as temporaries, one after the other.
  EXPECT_EQ(allocations(rebuilt, 64), 3u + 2 + 2);
  EXPECT_EQ(peak(rebuilt), 64u + 128 + 32 + 100 + 64);
}

TEST(Rebuild, ForTransformersEveryFourthOfTheOptimizersBlocksIsMadeOnceMore) {
  Program program = three_iterations({64, 64, 64, 64, 64});
  program.mark(Kind::transformer);
  const Rebuilt rebuilt = program.rebuilt();
  EXPECT_EQ(rebuilt.optimizer_bytes, 5u * 64);
  EXPECT_EQ(allocations(rebuilt, 64), 3u + 5 + 2 + 2);  // … in A's step and in B's
}

TEST(Rebuild, OnlyModulesThatCallNoOtherAreLayers) {
  Program program;
  program.mark(Kind::iteration);
  program.module(1, [&] {
    program.op(3, [&] { program.allocate(1000); });
    program.module(2, [&] { program.op(4, [&] { program.allocate(100); }); });
  });
  program.allocate(5000);
  program.step();
  const Rebuilt rebuilt = program.rebuilt();
  EXPECT_EQ(allocations(rebuilt, 100), 1u);
  EXPECT_EQ(allocations(rebuilt, 1000), 0u);
  EXPECT_EQ(allocations(rebuilt, 5000), 0u);
}

TEST(Rebuild, OfATransformersModelAllModulesAreLayersAndABlockIsItsInnermosts) {
  Program program;
  program.mark(Kind::transformer);
  program.mark(Kind::iteration);
  program.module(1, [&] {
    program.op(3, [&] { program.allocate(1000); });
    program.module(2, [&] { program.op(4, [&] { program.allocate(100); }); });
    program.op(5, [&] { program.release(program.allocate(70)); });
  });
  program.allocate(5000);
  program.step();
  const Rebuilt rebuilt = program.rebuilt();
  EXPECT_EQ(allocations(rebuilt, 100), 1u);
  EXPECT_EQ(allocations(rebuilt, 1000), 1u);
  EXPECT_EQ(allocations(rebuilt, 70), 0u);
  EXPECT_EQ(allocations(rebuilt, 5000), 0u);
}

TEST(Rebuild, ABuffersSizeIsNoSignOfOptimizerState) {
  Program program;
  program.mark(Kind::parameter, 8, 1);
  program.mark(Kind::iteration);
  program.step({8});
  EXPECT_EQ(program.rebuilt().optimizer_bytes, 0u);
}

TEST(Rebuild, OfALossEverythingCounts) {
  Program program;
  program.mark(Kind::iteration);
  program.module(1, [&] { program.op(3, [&] { program.release(program.allocate(70)); }); }, true);
  program.backward(3, [&] { program.release(program.allocate(90)); }, [] {});
  program.step();
  const Rebuilt rebuilt = program.rebuilt();
  EXPECT_EQ(allocations(rebuilt, 70), 1u);
  EXPECT_EQ(allocations(rebuilt, 90), 1u);
}

TEST(Rebuild, DataLivesForOneIteration) {
  const Rebuilt rebuilt = three_iterations().rebuilt();
  EXPECT_EQ(rebuilt.data_bytes, 32u);
  std::uint64_t released = 0;
  for (const auto& request : rebuilt.requests) released += !request.allocate && request.bytes == 32;
  EXPECT_EQ(allocations(rebuilt, 32), 2u);
  EXPECT_EQ(released, 1u);
}

TEST(Rebuild, ParametersAndBuffersAreThereFromTheStart) {
  Program program;
  program.mark(Kind::iteration);
  program.mark(Kind::parameter, 64);
  program.mark(Kind::parameter, 8, 1);
  program.step();
  const Rebuilt rebuilt = program.rebuilt();
  ASSERT_EQ(rebuilt.requests.size(), 2u);
  EXPECT_EQ(rebuilt.requests[0].bytes, 64u);
  EXPECT_EQ(rebuilt.requests[1].bytes, 8u);
  EXPECT_EQ(rebuilt.parameter_bytes, 72u);
}

TEST(Rebuild, IterationsWithoutAStepDoNotCount) {
  Program program = three_iterations();
  program.mark(Kind::iteration, 3);  // a batch was handed out and the program ended
  EXPECT_EQ(program.rebuilt().iterations, 3);
}

TEST(Rebuild, AProgramThatNeverTrainsIsAnError) {
  Program program;
  program.mark(Kind::parameter, 64);
  auto result = rebuild(program.events());
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().kind, ErrorKind::not_found);
}

TEST(Rebuild, AnAddressThatIsHandedOutTwiceWasReleasedInBetween) {
  Program program;
  program.mark(Kind::iteration);
  program.module(1, [&] {
    program.op(3, [&] {
      program.mark(Kind::allocate, 4096, 100);
      program.mark(Kind::allocate, 4096, 200);
    });
  });
  program.step();
  const Rebuilt rebuilt = program.rebuilt();
  EXPECT_EQ(allocations(rebuilt, 100), 0u);
  EXPECT_EQ(allocations(rebuilt, 200), 1u);
}

class SequenceFile : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/gpumem-xmem-test-XXXXXX";
    const int file = ::mkstemp(path);
    ASSERT_GE(file, 0);
    ::close(file);
    path_ = path;
  }
  void TearDown() override { ::unlink(path_.c_str()); }
  void write(const std::string& content) {
    FILE* file = std::fopen(path_.c_str(), "w");
    ASSERT_NE(file, nullptr);
    std::fwrite(content.data(), 1, content.size(), file);
    std::fclose(file);
  }
  static std::string header() {
    SequenceHeader header{};
    std::copy(std::begin(kSequenceMagic), std::end(kSequenceMagic), header.magic);
    header.version = kSequenceVersion;
    header.event_bytes = sizeof(SequenceEvent);
    return std::string(reinterpret_cast<const char*>(&header), sizeof header);
  }
  std::string path_;
};

TEST_F(SequenceFile, ATornLastEventIsLeftOut) {
  const SequenceEvent event{Kind::data, {}, 32, 0};
  const std::string bytes(reinterpret_cast<const char*>(&event), sizeof event);
  write(header() + bytes + bytes.substr(0, 11));
  auto events = read_sequence(path_);
  ASSERT_TRUE(events.ok());
  ASSERT_EQ(events->size(), 1u);
  EXPECT_EQ(events->front().first, 32u);
}

TEST_F(SequenceFile, AnotherFileIsRefused) {
  write("this is no sequence of anything, and long enough");
  auto events = read_sequence(path_);
  ASSERT_FALSE(events.ok());
  EXPECT_EQ(events.error().kind, ErrorKind::invalid_argument);
  write("short");
  EXPECT_FALSE(read_sequence(path_).ok());
}

}  // namespace
}  // namespace gpumem::xmem
