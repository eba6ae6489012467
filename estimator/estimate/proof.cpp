// SPDX-License-Identifier: Apache-2.0
// What a proof run says of an estimate. See proof.h.
#include "estimator/estimate/proof.h"

#include <algorithm>

#include "base/size.h"

namespace gpumem::estimate {
namespace {

std::uint64_t bytes_of(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
}

// Requests that PyTorch's allocators refused in the end.
std::uint64_t refused_requests(const Observation& seen) {
  std::uint64_t refused = 0;
  for (const auto& file : seen.events) {
    refused += static_cast<std::uint64_t>(
        std::count_if(file.events.begin(), file.events.end(), [](const auto& event) { return event.action == record::EventAction::out_of_memory; }));
  }
  return refused;
}

}  // namespace

const char* proof_name(ProofResult result) {
  switch (result) {
    case ProofResult::not_asked: return "not_asked";
    case ProofResult::no_time: return "no_time";
    case ProofResult::impossible: return "impossible";
    case ProofResult::proven: return "proven";
    case ProofResult::proven_at_peak: return "proven_at_peak";
    case ProofResult::disproven: return "disproven";
  }
  return "";
}

namespace {

// Optimizer steps are told apart by the optimizers' addresses, so equal runs may count one more or less (steps.py).
bool made_fewer_steps(std::uint64_t made, std::uint64_t expected) { return made + 1 < expected && 10 * made < 9 * expected; }

}  // namespace

ProofRun judge_proof(const nlohmann::json& first, const Observation& seen, const nlohmann::json& second) {
  ProofRun run;
  run.capacity_bytes = seen.capacity_bytes;
  run.wall_s = seen.wall_s;
  for (const auto& device : seen.book.devices) run.peak_bytes = std::max(run.peak_bytes, device.peak_bytes);
  const std::string status = second.value("status", "");
  if (status != "complete") {
    run.why_not = second.value("error", "it ended otherwise: " + status);
  } else if (const std::uint64_t refused = refused_requests(seen); refused > 0) {
    run.why_not = std::to_string(refused) + " requests were refused, and it went on with less";
  } else if (made_fewer_steps(bytes_of(second, "steps"), bytes_of(first, "steps")) && !second.value("stopped_early", false)) {
    run.why_not = "it made " + std::to_string(bytes_of(second, "steps")) + " optimizer steps instead of " + std::to_string(bytes_of(first, "steps"));
  } else {
    run.passed = true;
  }
  return run;
}

void apply_proof(nlohmann::json& estimate, const Proof& proof) {
  const std::uint64_t peak_bytes = bytes_of(estimate, "need_bytes"), minimum_bytes = bytes_of(estimate, "minimum_need_bytes");
  nlohmann::json runs = nlohmann::json::array();
  for (const auto& run : proof.runs) {
    nlohmann::json item = {{"capacity_bytes", run.capacity_bytes}, {"passed", run.passed}, {"peak_bytes", run.peak_bytes}, {"wall_s", run.wall_s}};
    if (!run.passed) item["error"] = run.why_not;
    runs.push_back(std::move(item));
  }
  estimate["proof"] = {{"result", proof_name(proof.result)}, {"runs", std::move(runs)}};
  std::string note;
  const std::string minimum = format_size(minimum_bytes);
  switch (proof.result) {
    case ProofResult::not_asked: break;
    case ProofResult::no_time: note = "a limit of " + minimum + " was not proven: " + proof.why; break;
    case ProofResult::impossible: note = "no limit was proven: " + proof.why; break;
    case ProofResult::proven:
      estimate["need_bytes"] = proof.runs.back().capacity_bytes;
      if (estimate.contains("devices")) {
        for (auto& device : estimate["devices"]) {
          if (bytes_of(device, "need_bytes") > proof.runs.back().capacity_bytes) device["need_bytes"] = proof.runs.back().capacity_bytes;
        }
      }
      break;
    case ProofResult::proven_at_peak:
      estimate["need_bytes"] = proof.runs.back().capacity_bytes;
      if (!proof.runs.front().passed) {
        note = "a limit of " + minimum + " did not hold (" + proof.runs.front().why_not + "): the need is the peak, which a second run has shown to hold";
      } else if (!proof.why.empty()) {
        note = "no limit below the peak was looked for: " + proof.why;
      }
      break;
    case ProofResult::disproven: {
      std::uint64_t need_bytes = peak_bytes;
      for (const auto& run : proof.runs) need_bytes = std::max(need_bytes, run.peak_bytes);
      estimate["need_bytes"] = need_bytes;
      note = "no run within a limit came to its end as the first did (" + proof.runs.back().why_not + "): runs differ, the need is the highest peak";
      break;
    }
  }
  const bool shown = proof.result == ProofResult::proven || proof.result == ProofResult::proven_at_peak;
  if (!shown && estimate["confidence"] == "high") estimate["confidence"] = "medium";
  if (!note.empty()) estimate["notes"].push_back(note);
}

}  // namespace gpumem::estimate
