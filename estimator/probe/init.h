// SPDX-License-Identifier: Apache-2.0
// The first process beside a probed program: pid 1 of its namespaces, or its subreaper where there is no sandbox.
// Part of gpumem-probe, running between its supervisor (supervise.h) and the program.
//
// It builds the view, starts the program, reaps whatever dies, watches memory and libraries, and ends everything when
// the program has ended: nothing outlives a probe. SIGTERM makes it end everything at once and still report.
// It reports as one JSON object on a pipe; a supervisor that reads none knows that init itself was killed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "estimator/probe/view.h"

namespace gpumem::probe {

struct Program {
  std::vector<std::string> arguments;    // arguments[0] is looked up in PATH of `environment`
  std::vector<std::string> environment;
  std::string working_directory;
  int output_fd = 2;                     // becomes its standard output and error
  double cpu_seconds = 0;                // RLIMIT_CPU of each process; 0: none
  std::uint64_t file_bytes = 0;          // RLIMIT_FSIZE; 0: none
  std::uint64_t memory_bytes = 0;        // of all its processes together; 0: none
  int cpus = 0;                          // how many of the allowed CPUs it may use; 0: all
};

// Runs in a process of its own and never returns. `sandboxed`: this is pid 1 of new namespaces, and `view` is built.
[[noreturn]] void run_init(const Program& program, const ViewPlan& view, bool sandboxed, int report_fd);

}  // namespace gpumem::probe
