// SPDX-License-Identifier: Apache-2.0
// gpumem-slurm-facts: prints as one JSON object what gpumemd needs of Slurm's configuration. Run by gpumemd.
//
// A program of its own because libslurm blocks, prints and calls exit() when it pleases.
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

namespace {

using nlohmann::json;

std::string text(const char* value) { return value != nullptr ? value : ""; }

template <class List>
void add_job_defaults(json& object, List list) {
  object["cpus_per_gpu"] = 0;
  object["mem_per_gpu_mib"] = 0;
  if (list == nullptr) return;
  const auto iterator = slurm_list_iterator_create(list);
  while (const auto* item = static_cast<const job_defaults_t*>(slurm_list_next(iterator))) {
    if (item->type == JOB_DEF_CPU_PER_GPU) object["cpus_per_gpu"] = item->value;
    if (item->type == JOB_DEF_MEM_PER_GPU) object["mem_per_gpu_mib"] = item->value;
  }
  slurm_list_iterator_destroy(iterator);
}

int fail(const std::string& what) {
  const json object = {{"error", what + ": " + slurm_strerror(errno)}};
  std::puts(object.dump(-1, ' ', false, json::error_handler_t::replace).c_str());
  return 1;
}

}  // namespace

int main() {
  // Since 22.05 the configuration is read on demand; slurm_init() only names its file.
  const char* conf = std::getenv("SLURM_CONF");
  slurm_init(conf);
  slurm_conf_t* slurm_conf = nullptr;
  if (slurm_load_ctl_conf(0, &slurm_conf) != SLURM_SUCCESS) return fail("slurmctld does not tell its configuration");
  partition_info_msg_t* partitions = nullptr;
  if (slurm_load_partitions(0, &partitions, SHOW_ALL) != SLURM_SUCCESS) return fail("slurmctld does not tell its partitions");
  json facts;
  facts["cluster"] = text(slurm_conf->cluster_name);
  facts["version"] = text(slurm_conf->version);
  facts["slurm_user_id"] = slurm_conf->slurm_user_id;
  facts["has_shards"] = text(slurm_conf->gres_plugins).find("shard") != std::string::npos;
  add_job_defaults(facts, slurm_conf->job_defaults_list);
  facts["partitions"] = json::array();
  for (std::uint32_t i = 0; i < partitions->record_count; ++i) {
    const partition_info_t& partition = partitions->partition_array[i];
    json item;
    item["name"] = text(partition.name);
    item["default"] = (partition.flags & PART_FLAG_DEFAULT) != 0;
    add_job_defaults(item, partition.job_defaults_list);
    const std::uint32_t minutes = partition.default_time != NO_VAL ? partition.default_time : partition.max_time;
    item["default_time_s"] = minutes == INFINITE || minutes == NO_VAL ? 0 : std::uint64_t{minutes} * 60;
    facts["partitions"].push_back(std::move(item));
  }
  std::puts(facts.dump(-1, ' ', false, json::error_handler_t::replace).c_str());
  return 0;
}
