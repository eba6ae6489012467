// SPDX-License-Identifier: Apache-2.0
// Which pool a submission belongs to, and which of its GPU models it may run on. Pure functions, used by gpumemd.
#pragma once

#include <string>
#include <vector>

#include "daemon/config.h"
#include "daemon/policy/request.h"
#include "daemon/policy/slurm_facts.h"

namespace gpumem::policy {

struct PoolChoice {
  const config::PoolSection* pool = nullptr;  // null: none, and why
  std::string reason;
  std::vector<std::string> partitions;        // the request's, or Slurm's default; may be empty when not known
};

// Every partition of the request must lead to the same pool (the first in the file that names the partition and the
// account); a request without a partition goes to Slurm's default one.
PoolChoice choose_pool(const Request& request, const std::vector<config::PoolSection>& pools, const SlurmFacts& facts);

// What the pool itself says against replacing this request; empty: nothing.
std::string pool_obstacle(const Request& request, const config::PoolSection& pool, const std::vector<std::string>& partitions,
                          const SlurmFacts& facts);

// Whether Slurm's GPU type ("rtx3060") can mean the model ("NVIDIA GeForce RTX 3060"): letters and digits of one in the other.
bool type_matches_model(const std::string& type, const std::string& model);

}  // namespace gpumem::policy
