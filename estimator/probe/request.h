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

// How the need is found out. automatic: on the virtual GPU, or by xMem's method for a PyTorch that was built without CUDA.
enum class Method { virtual_gpu, xmem, automatic };

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
  bool prove = false;                    // a lower limit than the peak is tried in a second run
  int batch_percent = 100;               // of each DataLoader's batch
  std::string record_directory;          // where to keep the record; empty: among the newest in the user's cache
  std::string snapshot_file;             // where PyTorch's memory snapshot goes; empty: none is made
  Method method = Method::virtual_gpu;
  bool keep_output = false;              // "output": "tail"

  bool is_script() const { return command.empty(); }
};

// "auto", "virtual_gpu", "xmem"; fails with invalid_argument.
Result<Method> parse_method(const std::string& text);
const char* method_name(Method method);

// Fails with invalid_argument naming the key that is wrong.
Result<Request> parse_request(const std::string& text);
std::string to_text(const Request& request);

}  // namespace gpumem::probe
