// SPDX-License-Identifier: Apache-2.0
// From partitions and account to the pool.
#include "daemon/policy/pool.h"

#include <algorithm>
#include <cctype>
#include <sstream>

namespace gpumem::policy {
namespace {

bool holds(const std::vector<std::string>& list, const std::string& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

const config::PoolSection* pool_of(const std::string& partition, const std::string& account,
                                   const std::vector<config::PoolSection>& pools) {
  for (const config::PoolSection& pool : pools) {
    const bool partition_fits = pool.partitions.empty() || holds(pool.partitions, partition);
    const bool account_fits = pool.accounts.empty() || holds(pool.accounts, account);
    if (partition_fits && account_fits) return &pool;
  }
  return nullptr;
}

std::string letters_and_digits(const std::string& text) {
  std::string out;
  for (const unsigned char c : text) {
    if (std::isalnum(c)) out += static_cast<char>(std::tolower(c));
  }
  return out;
}

// The time limit the job would get; 0: none, or not known.
std::uint64_t time_limit_s(const Request& request, const std::vector<std::string>& partitions, const SlurmFacts& facts) {
  if (request.has("time")) return config::parse_slurm_time(request.option("time")).value_or(0);
  std::uint64_t longest = 0;
  for (const std::string& name : partitions) {
    const PartitionFacts* partition = facts.partition(name);
    if (partition == nullptr || partition->default_time_s == 0) return 0;
    longest = std::max(longest, partition->default_time_s);
  }
  return longest;
}

}  // namespace

PoolChoice choose_pool(const Request& request, const std::vector<config::PoolSection>& pools, const SlurmFacts& facts) {
  PoolChoice choice;
  std::istringstream list(request.option("partition"));
  for (std::string name; std::getline(list, name, ',');) {
    if (!name.empty()) choice.partitions.push_back(name);
  }
  if (choice.partitions.empty()) {
    const std::string by_default = facts.default_partition();
    if (!by_default.empty()) choice.partitions.push_back(by_default);
  }
  const std::string account = request.option("account");
  std::vector<std::string> wanted = choice.partitions;
  if (wanted.empty()) wanted.push_back("");  // not known: only a pool for all partitions can be meant
  for (const std::string& name : wanted) {
    const config::PoolSection* pool = pool_of(name, account, pools);
    if (pool == nullptr) {
      choice.pool = nullptr;
      choice.reason = name.empty() ? "no pool is for all partitions, and Slurm's default partition is not known"
                                   : "no pool is for partition " + name + (account.empty() ? "" : " and account " + account);
      return choice;
    }
    if (choice.pool != nullptr && choice.pool != pool) {
      choice.pool = nullptr;
      choice.reason = "its partitions belong to different pools";
      return choice;
    }
    choice.pool = pool;
  }
  return choice;
}

std::string pool_obstacle(const Request& request, const config::PoolSection& pool, const std::vector<std::string>& partitions,
                          const SlurmFacts& facts) {
  if (request.has("reservation") && !pool.reservations) return "it uses a reservation";
  if (pool.longest_time.seconds > 0) {
    const std::uint64_t limit_s = time_limit_s(request, partitions, facts);
    if (limit_s == 0) return "it has no time limit, and only bounded jobs share GPUs here: give --time";
    if (limit_s > pool.longest_time.seconds) return "its time limit is longer than jobs that share GPUs here may have";
  }
  return {};
}

bool type_matches_model(const std::string& type, const std::string& model) {
  const std::string short_name = letters_and_digits(type);
  const std::string long_name = letters_and_digits(model);
  return !short_name.empty() && (long_name.find(short_name) != std::string::npos || short_name.find(long_name) != std::string::npos);
}

}  // namespace gpumem::policy
