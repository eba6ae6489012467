// SPDX-License-Identifier: Apache-2.0
// What gpumemd takes from an estimate that gpumem-probe wrote as the submitter: data that is checked. Used by gpumemd.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace gpumem::home {

struct EstimateReading {
  std::string status;        // complete, out_of_memory, timeout, failed, unsupported
  std::string reason;        // a word (contracts: Estimate)
  std::string error;         // a sentence without its full stop
  std::uint64_t need_bytes = 0;
  double wall_s = 0;
  std::vector<std::string> paths;  // files that the program read; without them it is no answer for a later submission
  std::string stored_json;   // for history: without the files, with the end of the output only
};

// Fails with protocol when it is not an estimate, or says complete without a need.
Result<EstimateReading> read_estimate(const std::string& json);

}  // namespace gpumem::home
