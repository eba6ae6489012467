// SPDX-License-Identifier: Apache-2.0
// From a need to an answer: margin, limit, action and the one line that the user reads. Pure functions, used by gpumemd.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/config.h"
#include "daemon/policy/request.h"
#include "daemon/policy/rewrite.h"
#include "daemon/policy/slurm_facts.h"

namespace gpumem::policy {

// What is known of the job's need when the answer is made.
struct Evidence {
  std::string rule;             // user, measured, probe
  std::uint64_t need_bytes = 0; // with `user`: the limit itself
  std::string how;              // "probe, 6.2 s": in brackets at the line's end
  std::uint64_t larger_than_mib = 0;  // a run of this job was out of memory at this limit; 0: none
};

struct MarginRule {
  double percent = 0;
  std::uint64_t floor_bytes = 0;
  std::int64_t margin_id = 0;
};

// max(percent of the need, floor), in bytes.
std::uint64_t margin_bytes(std::uint64_t need_bytes, const MarginRule& margin);

// Where the job may run.
struct Place {
  const config::PoolSection* pool = nullptr;
  std::vector<std::string> partitions;
  std::string gpu;                  // the model that needs most
  std::uint64_t shards_per_gpu = 0; // MiB of the largest GPU that it may get
};

struct Answer {
  std::string action = "keep";
  std::string rule;
  std::string line;               // without "gpumem: "; empty: say nothing
  std::string reason;             // for history: why it was kept
  std::uint64_t limit_mib = 0;    // 0: none
  std::uint64_t margin_bytes = 0;
  Rewrite rewrite;                // with action "rewrite", or what advise and observe would have done
};

// The answer for a need. The pool's mode decides whether anything is printed or changed.
Answer decide(const Request& request, const GpuRequest& gpu, const Place& place, const SlurmFacts& facts,
              const Evidence& evidence, const MarginRule& margin);

// An answer that keeps the request: silent in mode observe and off.
Answer keep(const config::PoolSection* pool, const std::string& rule, const std::string& reason, bool say_it);

// The answer for an estimate that found the GPU too small.
Answer too_large(const Place& place, const std::string& what_it_reached);

}  // namespace gpumem::policy
