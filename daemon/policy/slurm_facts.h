// SPDX-License-Identifier: Apache-2.0
// What gpumemd knows of Slurm's configuration: what a request gets by default. Used by gpumemd.
//
// A plain value, read by gpumem-slurm-facts through libslurm and handed over as JSON. Where it could not be read, `known` is
// false and policy falls back to the pool's own keys, or leaves the job alone and says so.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace gpumem::policy {

struct PartitionFacts {
  std::string name;
  bool is_default = false;
  std::uint64_t cpus_per_gpu = 0;     // DefCpuPerGPU; 0: not set
  std::uint64_t mem_per_gpu_mib = 0;  // DefMemPerGPU; 0: not set
  std::uint64_t default_time_s = 0;   // DefaultTime, else MaxTime; 0: none
};

struct SlurmFacts {
  bool known = false;
  std::string problem;       // why it is not known
  std::string cluster;
  std::string version;
  std::uint32_t slurm_user_id = 0;
  std::uint64_t cpus_per_gpu = 0;
  std::uint64_t mem_per_gpu_mib = 0;
  bool has_shards = false;   // GresTypes names shard
  std::vector<PartitionFacts> partitions;

  const PartitionFacts* partition(const std::string& name) const;
  std::string default_partition() const;  // empty: none or not known
};

// From the one JSON object that gpumem-slurm-facts prints.
Result<SlurmFacts> parse_slurm_facts(const std::string& json);

}  // namespace gpumem::policy
