// SPDX-License-Identifier: Apache-2.0
// What gpumemd takes from an estimate that gpumem-probe wrote as the submitter: data that is checked. Used by gpumemd.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "db/history.h"

namespace gpumem::home {

struct EstimateReading {
  std::string status;        // complete, out_of_memory, timeout, failed, unsupported
  std::string reason;        // a word (contracts: Estimate)
  std::string error;         // a sentence without its full stop
  std::uint64_t need_bytes = 0;
  double wall_s = 0;
  bool files_known = false;  // an estimate without them is no answer for a later submission
  std::vector<db::ProbedFile> files;
  std::string stored_json;   // for history: without the files, with the end of the output only
};

// Fails with protocol when it is not an estimate, or says complete without a need.
Result<EstimateReading> read_estimate(const std::string& json);

// From the database: the same, with the files that stand beside it.
Result<EstimateReading> read_estimate(const db::Probe& probe);

}  // namespace gpumem::home
