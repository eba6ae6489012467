// SPDX-License-Identifier: Apache-2.0
// From the names in [[pool]] to GPU profiles.
#include "daemon/home/pools.h"

#include <algorithm>

#include "base/size.h"
#include "daemon/policy/pool.h"

namespace gpumem::home {

std::vector<const PoolGpu*> Pool::candidates(const std::string& type) const {
  std::vector<const PoolGpu*> fitting, all;
  for (const PoolGpu& gpu : gpus) {
    all.push_back(&gpu);
    if (!type.empty() && policy::type_matches_model(type, gpu.profile.name)) fitting.push_back(&gpu);
  }
  return fitting.empty() ? all : fitting;
}

Result<std::vector<Pool>> resolve_pools(const config::Config& config, const std::string& profiles_directory) {
  std::vector<Pool> pools;
  for (std::size_t i = 0; i < config.pools.size(); ++i) {
    Pool pool;
    pool.section = config.pools[i];
    for (std::string& name : pool.section.gpus) {
      auto profile = gpus::find_profile(profiles_directory, name);
      if (!profile) {
        const auto origin = config.origins.find("pool[" + std::to_string(i) + "].gpus");
        const std::string where = origin != config.origins.end() ? origin->second + ": " : "";
        return Error{profile.error().kind, where + "pool " + pool.section.name + ": " + profile.error().message};
      }
      name = profile->name;
      PoolGpu gpu;
      const std::uint64_t usable_mib = profile->usable_bytes() / kMiB;
      gpu.shards_per_gpu = usable_mib;
      if (pool.section.shards_per_gpu > 0) {
        gpu.shards_per_gpu = static_cast<std::uint64_t>(pool.section.shards_per_gpu);
        if (gpu.shards_per_gpu < usable_mib) gpu.capacity_bytes = gpu.shards_per_gpu * kMiB;
      }
      gpu.profile = std::move(*profile);
      pool.gpus.push_back(std::move(gpu));
    }
    pools.push_back(std::move(pool));
  }
  return pools;
}

}  // namespace gpumem::home
