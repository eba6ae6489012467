// SPDX-License-Identifier: Apache-2.0
// What a proof run says of an estimate. Part of estimate/ (see estimate.h). Pure.
//
// Note [Proof]
// A lower need than the run's own peak is only believed when a second run, on virtual GPUs that have no more than that,
// came to its end as the first did and no request of PyTorch's was refused for good. Runs differ by chance (shuffled
// lengths): where it fails, or where there is no lower one to try, the first run's peak is the capacity of a further run.
// Only a run with no more than the need makes the confidence high: the first run had the whole GPU, and never showed that
// the program comes out the same with less, or a second time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "estimator/estimate/estimate.h"

namespace gpumem::estimate {

enum class ProofResult {
  not_asked,    // the need is the peak; a lower limit may hold
  no_time,      // asked for, but the deadline was too near
  impossible,   // asked for, but the program cannot be run twice
  proven,       // with less than the peak
  proven_at_peak,  // with the first run's peak: less failed, or there was no less to try
  disproven,    // no run with a bounded capacity passed
};
const char* proof_name(ProofResult result);

struct ProofRun {
  std::uint64_t capacity_bytes = 0;
  bool passed = false;
  std::string why_not;      // a clause
  std::uint64_t peak_bytes = 0;  // of the fullest device
  double wall_s = 0;
};

struct Proof {
  ProofResult result = ProofResult::not_asked;
  std::vector<ProofRun> runs;
  std::string why;          // of no_time, of impossible, or why no less than the peak was tried: a clause
};

// What the second run showed, as `first` and the run's own estimate tell it.
ProofRun judge_proof(const nlohmann::json& first, const Observation& seen, const nlohmann::json& second);

// Completes a complete estimate: `need_bytes` where the proof changes it, `proof`, `confidence` and notes.
void apply_proof(nlohmann::json& estimate, const Proof& proof);

}  // namespace gpumem::estimate
