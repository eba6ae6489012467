// SPDX-License-Identifier: Apache-2.0
// Runs a program to its end within a deadline. Used by the CLI and the tests; gpumemd starts children from its event loop itself.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace gpumem {

struct SubprocessOptions {
  std::vector<std::string> arguments;    // arguments[0] is the program: a path, or a name looked up in PATH
  std::vector<std::string> environment;  // "NAME=VALUE"; empty: the caller's own
  std::string input;                     // given on standard input
  double timeout_s = 0;                  // 0: none; on expiry its process group gets SIGKILL
  bool capture_stderr = true;            // false: standard error goes where the caller's goes
};

struct SubprocessResult {
  int exit_status = -1;    // 0..255, or -1 when a signal ended it
  int signal = 0;          // the signal that ended it, or 0
  bool timed_out = false;
  std::string output;      // standard output
  std::string error_output;
};

// Blocks until the program and its output end. Fails only when it cannot be started or read.
Result<SubprocessResult> run_subprocess(const SubprocessOptions& options);

}  // namespace gpumem
