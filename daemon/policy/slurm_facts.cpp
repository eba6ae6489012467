// SPDX-License-Identifier: Apache-2.0
// Slurm's configuration as gpumem-slurm-facts prints it.
#include "daemon/policy/slurm_facts.h"

#include <nlohmann/json.hpp>

namespace gpumem::policy {

const PartitionFacts* SlurmFacts::partition(const std::string& name) const {
  for (const PartitionFacts& partition : partitions) {
    if (partition.name == name) return &partition;
  }
  return nullptr;
}

std::string SlurmFacts::default_partition() const {
  for (const PartitionFacts& partition : partitions) {
    if (partition.is_default) return partition.name;
  }
  return {};
}

Result<SlurmFacts> parse_slurm_facts(const std::string& json) {
  SlurmFacts facts;
  try {
    const nlohmann::json object = nlohmann::json::parse(json);
    if (object.contains("error")) return Error{ErrorKind::unavailable, object.at("error").get<std::string>()};
    facts.known = true;
    facts.cluster = object.value("cluster", "");
    facts.version = object.value("version", "");
    facts.slurm_user_id = object.value("slurm_user_id", 0u);
    facts.cpus_per_gpu = object.value("cpus_per_gpu", std::uint64_t{0});
    facts.mem_per_gpu_mib = object.value("mem_per_gpu_mib", std::uint64_t{0});
    facts.has_shards = object.value("has_shards", false);
    for (const nlohmann::json& item : object.at("partitions")) {
      PartitionFacts partition;
      partition.name = item.at("name").get<std::string>();
      partition.is_default = item.value("default", false);
      partition.cpus_per_gpu = item.value("cpus_per_gpu", std::uint64_t{0});
      partition.mem_per_gpu_mib = item.value("mem_per_gpu_mib", std::uint64_t{0});
      partition.default_time_s = item.value("default_time_s", std::uint64_t{0});
      facts.partitions.push_back(std::move(partition));
    }
  } catch (const nlohmann::json::exception& error) {
    return Error{ErrorKind::protocol, std::string("what gpumem-slurm-facts printed is not its JSON: ") + error.what()};
  }
  return facts;
}

}  // namespace gpumem::policy
