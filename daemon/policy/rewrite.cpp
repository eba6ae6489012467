// SPDX-License-Identifier: Apache-2.0
// From one GPU to shards: what to reset and what to make explicit.
#include "daemon/policy/rewrite.h"

#include <algorithm>

#include "base/size.h"

namespace gpumem::policy {
namespace {

// The largest value that any of the partitions, or the whole cluster, gives per GPU. 0: none.
std::uint64_t default_per_gpu(const std::vector<std::string>& partitions, const SlurmFacts& facts,
                              std::uint64_t PartitionFacts::*of_partition, std::uint64_t of_cluster) {
  std::uint64_t most = 0;
  bool all_have_own = !partitions.empty();
  for (const std::string& name : partitions) {
    const PartitionFacts* partition = facts.partition(name);
    if (partition != nullptr && partition->*of_partition > 0) {
      most = std::max(most, partition->*of_partition);
    } else {
      all_have_own = false;
    }
  }
  return all_have_own ? most : std::max(most, of_cluster);
}

bool names_only_gpus(const std::string& tres) {
  std::size_t start = 0;
  while (start <= tres.size()) {
    std::size_t end = tres.find(',', start);
    if (end == std::string::npos) end = tres.size();
    const std::string item = tres.substr(start, end - start);
    if (item.compare(0, 8, "gres/gpu") != 0 && item.compare(0, 8, "gres:gpu") != 0) return false;
    start = end + 1;
  }
  return true;
}

}  // namespace

Rewrite rewrite(const Request& request, const GpuRequest& gpu, std::uint64_t limit_mib, const config::PoolSection& pool,
                const std::vector<std::string>& partitions, const SlurmFacts& facts) {
  Rewrite result;
  const unsigned release = slurm_release(request.slurm_version);
  const std::uint64_t tasks = task_count(request);

  std::string type;
  if (!gpu.type.empty() && pool.gpus.size() > 1) {
    if (release < 2311) {
      result.obstacle = "Slurm " + request.slurm_version + " cannot keep the GPU type of a shard request, and pool " + pool.name +
                        " has several models";
      return result;
    }
    type = gpu.type + ":";
  }
  const std::string tres = request.option("tres-per-task");
  if (!tres.empty() && !names_only_gpus(tres) && !request.has("cpus-per-task")) {
    result.obstacle = "--tres-per-task asks for more than a GPU";
    return result;
  }

  std::uint64_t cpus_per_gpu = static_cast<std::uint64_t>(pool.cpus_per_gpu);
  if (cpus_per_gpu == 0) cpus_per_gpu = default_per_gpu(partitions, facts, &PartitionFacts::cpus_per_gpu, facts.cpus_per_gpu);
  const bool cpus_known = facts.known || pool.cpus_per_gpu > 0 || request.has("cpus-per-gpu") || request.has("cpus-per-task");
  if (request.has("cpus-per-gpu")) {
    const auto wanted = option_number(request.option("cpus-per-gpu"));
    if (!wanted) {
      result.obstacle = "--cpus-per-gpu=" + request.option("cpus-per-gpu") + " is not a number that gpumem knows";
      return result;
    }
    cpus_per_gpu = *wanted;
  }

  std::uint64_t memory_mib = to_mib_ceil(pool.mem_per_gpu.bytes);
  if (memory_mib == 0) memory_mib = default_per_gpu(partitions, facts, &PartitionFacts::mem_per_gpu_mib, facts.mem_per_gpu_mib);
  const bool memory_asked = request.has("mem") || request.has("mem-per-cpu");
  const bool memory_known = facts.known || pool.mem_per_gpu.bytes > 0 || memory_asked || request.has("mem-per-gpu");
  if (request.has("mem-per-gpu")) {
    const auto wanted = parse_size(request.option("mem-per-gpu"));
    if (!wanted) {
      result.obstacle = "--mem-per-gpu=" + request.option("mem-per-gpu") + " is not a size that gpumem knows";
      return result;
    }
    memory_mib = to_mib_ceil(*wanted);
  }
  if (!cpus_known || !memory_known) {
    result.obstacle = "the CPUs and memory that a GPU brings here are not known (" +
                      (facts.problem.empty() ? std::string("Slurm's configuration has not been read yet") : facts.problem) + ")";
    return result;
  }

  for (const char* option : {"gpus", "gpus-per-node", "gpus-per-task", "tres-per-task", "tres-bind", "gpu-bind", "cpus-per-gpu",
                             "mem-per-gpu"}) {
    if (request.has(option)) result.reset.push_back(option);
  }
  if (release >= 2405 && request.has("gpus-per-task")) {
    for (const char* option : {"tres-per-task", "tres-bind"}) {
      if (!request.has(option)) result.reset.push_back(option);
    }
  }

  result.gres = "shard:" + type + std::to_string(limit_mib);
  std::string gres = result.gres;
  for (const std::string& other : gpu.other_gres) gres += "," + other;
  result.set.push_back("gres=" + gres);

  // Run on 22.05: --cpus-per-task switches DefCpuPerGPU off, however small; without it a job gets the larger of what its tasks and
  // its GPU bring.
  if (!request.has("cpus-per-task") && cpus_per_gpu > tasks) {
    result.set.push_back("cpus-per-task=" + std::to_string((cpus_per_gpu + tasks - 1) / tasks));
  }
  if (memory_mib > 0 && !memory_asked) result.set.push_back("mem=" + std::to_string(memory_mib) + "M");
  return result;
}

}  // namespace gpumem::policy
