// SPDX-License-Identifier: Apache-2.0
// What gpumem-probe is asked to do (contracts: Probe request and answer). Used by gpumem-probe and those who ask it.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "estimator/gpus/profile.h"

namespace gpumem::probe {

struct Request {
  // Exactly one of the two.
  std::vector<std::string> command;
  std::string script_content;  // with its "#!" line
  std::vector<std::string> script_arguments;

  std::string working_directory;
  std::vector<std::string> environment;  // "NAME=VALUE"
  gpus::Profile gpu;
  int gpu_count = 1;
  std::uint64_t capacity_bytes = 0;      // 0: all that is usable
  double timeout_s = 0;                  // 0: none
  std::uint64_t memory_limit_bytes = 0;  // host memory of all processes; 0: most of what is available now
  int cpu_limit = 0;                     // CPUs; 0: all
  bool sandbox_required = true;          // false: the user's explicit wish to run without
  bool stop_when_stable = true;
  int epoch_batches = 6;                 // 0: epochs are left alone
  int stable_steps = 8;
  std::string record_directory;          // where to keep the record; empty: among the newest in the user's cache
  std::string snapshot_file;             // where PyTorch's memory snapshot goes; empty: none is made
  bool keep_output = false;              // "output": "tail"

  bool is_script() const { return command.empty(); }
};

// Fails with invalid_argument naming the key that is wrong.
Result<Request> parse_request(const std::string& text);
std::string to_text(const Request& request);

}  // namespace gpumem::probe
