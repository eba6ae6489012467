// SPDX-License-Identifier: Apache-2.0
// The request with shards in place of a GPU, worth as much as the original. Pure functions, used by gpumemd.
//
// What must be reset, translated or left alone was found by running Slurm 22.05, 24.11 and 26.05:
//  - gpu and shard in one job is an invalid request, so is any *-per-gpu option beside shards;
//  - DefCpuPerGPU and DefMemPerGPU do not apply to shards: what the GPU would have brought is made explicit;
//  - 24.11 and newer turn --gpus-per-task into tres-per-task and tres-bind behind the user's back: left over, steps see no GPU;
//  - 22.05 forgets a typed shard request at a restart of slurmctld: typed only from 23.11 on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/config.h"
#include "daemon/policy/request.h"
#include "daemon/policy/slurm_facts.h"

namespace gpumem::policy {

struct Rewrite {
  std::string obstacle;            // not empty: the request cannot be rewritten, and why
  std::vector<std::string> reset;  // option names, first
  std::vector<std::string> set;    // "NAME=VALUE", then
  std::string gres;                // "shard:3994"
};

Rewrite rewrite(const Request& request, const GpuRequest& gpu, std::uint64_t limit_mib, const config::PoolSection& pool,
                const std::vector<std::string>& partitions, const SlurmFacts& facts);

}  // namespace gpumem::policy
