// SPDX-License-Identifier: Apache-2.0
// What a job's meter has seen of cuDNN's workspaces (estimator/workspaces): its file, and the node's table. Used by gpumemd.
//
// Real GPUs only: what virtual ones answer teaches nothing. The file lies beside the job's meter book and goes with it.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "estimator/workspaces/merge.h"

namespace gpumem::node {

// STATE/jobs/KEY.workspaces, for GPUMEM_WORKSPACES_SEEN.
std::string seen_workspaces_path(const std::string& meter_book);
// STATE/workspaces.tsv, which probes on this host are given (GPUMEM_WORKSPACES).
std::string workspaces_table_path(const std::string& state_directory);

// An empty file of the user's, mode 0600; one that is there already (an earlier step's) stays.
Status prepare_seen_workspaces(const std::string& meter_book, std::uint32_t user_id);
// Adds what the job has seen so far to the table; what was added before is found there and changes nothing.
Result<workspaces::Merged> collect_workspaces(const std::string& state_directory, const std::string& meter_book, const std::string& gpu,
                                              std::uint64_t device_bytes);

}  // namespace gpumem::node
