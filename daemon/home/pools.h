// SPDX-License-Identifier: Apache-2.0
// The pools of the configuration with their GPU models looked up. Used by gpumemd, role submit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/config.h"
#include "estimator/gpus/profile.h"

namespace gpumem::home {

struct PoolGpu {
  gpus::Profile profile;
  std::uint64_t shards_per_gpu = 0;  // MiB that Slurm can hand out of one
  std::uint64_t capacity_bytes = 0;  // for the probe: 0 where the profile's usable memory is meant
};

struct Pool {
  config::PoolSection section;  // its `gpus` are full names
  std::vector<PoolGpu> gpus;

  // The models that a request for this Slurm type may get; all where none fits the type.
  std::vector<const PoolGpu*> candidates(const std::string& type) const;
};

// Fails with the pool's and the model's name when a model is not known.
Result<std::vector<Pool>> resolve_pools(const config::Config& config, const std::string& profiles_directory);

}  // namespace gpumem::home
