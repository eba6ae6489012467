// SPDX-License-Identifier: Apache-2.0
// From what a probe observed to an estimate (contracts: Estimate). Used by gpumem-probe.
//
// Pure: no files, no processes, so that every rule can be tested from hand-made observations.
//
// Note [Need]. On each device the book has the peak of everything that all processes held at one moment, contexts
// included: that is the need, whether processes overlapped or followed one another. It is split into contexts and the
// rest: those of the process with the largest peak where that peak explains the device's, else those of all processes.
// A lower limit that may hold is found by replaying the allocators' requests (minimum.h); it becomes the need when a run
// has proven it (proof.h).
//
// Note [Order of causes]. The first that applies decides: no sandbox · interrupted · host memory · deadline · (program
// failed:) library lost · CPU-only torch · out of memory · host failure on the device · missing function · its own
// failure · (it succeeded:) library lost · no device memory used.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "estimator/book/book.h"
#include "estimator/gpus/profile.h"
#include "estimator/record/events.h"
#include "estimator/record/record.h"

namespace gpumem::estimate {

// The book at the end of a probe.
struct BookSnapshot {
  std::vector<book::DeviceUse> devices;
  std::vector<book::ProcessUse> processes;
  std::vector<book::MissingFunction> missing;
};

// Fails with io where there is no readable book.
Result<BookSnapshot> read_book(const std::string& path);

// A process that had PyTorch's libraries mapped, as seen from outside (the shim may have been lost).
struct SeenTorch {
  pid_t pid = 0;
  std::string command;
  bool cuda_build = false;
  bool virtual_gpu = false;
};

// What a probe observed.
struct Observation {
  gpus::Profile gpu;
  std::uint64_t capacity_bytes = 0;  // of each device, resolved
  BookSnapshot book;
  record::Record record;
  std::vector<record::EventFile> events;  // what its processes asked PyTorch's allocator for

  std::string no_sandbox_step;  // not empty: the program was not run
  int exit_status = -1;         // -1: it did not exit
  int signal = 0;
  bool timed_out = false;
  bool interrupted = false;
  double timeout_s = 0;
  std::uint64_t memory_exceeded_bytes = 0;
  std::uint64_t memory_allowed_bytes = 0;      // what the probe's processes may take of the host's memory; 0: not limited
  std::uint64_t memory_group_limit_bytes = 0;  // of the control group around the probe; 0: none
  std::uint64_t kernel_kills = 0;              // processes that the kernel ended for want of memory while the program ran
  std::vector<SeenTorch> seen_torch;
  std::vector<std::string> notes;  // of the sandbox
  std::string output_tail;
  bool has_output_tail = false;
  bool own_cudnn = false;          // GPUMEM_CUDNN was there for jobs whose own is too old
  bool strict_overcommit = false;  // vm.overcommit_memory is 2 on this host
  std::uint64_t address_space_limit_bytes = 0;  // RLIMIT_AS that the program began with; 0: none
  std::uint64_t data_limit_bytes = 0;           // RLIMIT_DATA
  bool lagging_clock = false;      // the device lagged already (GPUMEM_CLOCK)
  bool on_cpu = false;             // xMem's method: the program trained on the CPU; its figures come from estimator/xmem
  double wall_s = 0;
};

// The estimate of version 1.
nlohmann::json make_estimate(const Observation& observation);

// The exit status of `gpumem estimate` for an estimate.
int exit_status_of(const nlohmann::json& estimate);

}  // namespace gpumem::estimate
