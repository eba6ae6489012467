// SPDX-License-Identifier: Apache-2.0
// From how tasks ended and what the books counted to a job's outcome. Pure functions. Used by gpumemd on the node.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "db/history.h"

namespace gpumem::node {

// Slurm's special steps (slurm/slurm.h: SLURM_BATCH_SCRIPT, SLURM_EXTERN_CONT).
inline constexpr std::uint32_t kBatchStep = 0xfffffffb;
inline constexpr std::uint32_t kExternStep = 0xfffffffc;

// How often memory was refused to the job so far, by whom.
struct Refusals {
  std::uint64_t by_limit = 0;
  std::uint64_t by_device = 0;
};

// wait(2)'s status into the task's exit status, signal and cause. A program that was refused memory and failed is out
// of memory; one that was refused and ended well has coped.
void end_task(db::Task& task, int wait_status, double now_s, const Refusals& refusals);

// The job's own end from its tasks: nothing while one runs; the batch script's end decides where there is one (as it
// decides the job's state in Slurm), else the worst task's. Writes ended_s, exit_status, signal and cause of `job`.
void conclude(db::Job& job, const std::vector<db::Task>& tasks);

}  // namespace gpumem::node
