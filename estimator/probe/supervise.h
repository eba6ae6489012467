// SPDX-License-Identifier: Apache-2.0
// Runs one program in the sandbox (or, on the user's wish, without) to its end or its deadline. Part of gpumem-probe.
//
// The caller must be single-threaded: the sandbox begins with a clone(2) that acts like fork(2). A failure to isolate
// is a result (`failed_step`), not an Error: the program was not run then.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "estimator/probe/init.h"
#include "estimator/probe/processes.h"

namespace gpumem::probe {

struct RunOptions {
  Program program;        // output_fd is chosen by `keep_output`
  ViewPlan view;
  bool sandbox = true;
  // Output that goes straight to our standard error (a terminal: programs see that it is one), or through us: its last
  // 64 KiB are kept, and forwarded if asked for.
  bool keep_output = false;
  bool forward_output = false;
  double timeout_s = 0;      // 0: none
  // Called about once a second while the program runs.
  std::function<void(double elapsed_s)> tick;
};

struct RunResult {
  std::string failed_step;   // not empty: there is no sandbox, and nothing was run
  int exit_status = -1;      // 0..255, -1 when it did not exit
  int signal = 0;
  bool timed_out = false;
  bool interrupted = false;  // we were asked to stop (SIGINT, SIGTERM, SIGHUP)
  std::uint64_t memory_exceeded_bytes = 0;  // not 0: ended because its processes took this much host memory
  std::uint64_t resident_peak_bytes = 0;
  std::vector<TorchProcess> torch_processes;
  std::vector<std::string> notes;
  std::string output_tail;
  double wall_s = 0;
};

Result<RunResult> supervise(const RunOptions& options);

}  // namespace gpumem::probe
