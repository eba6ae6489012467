// SPDX-License-Identifier: Apache-2.0
// What a user asked Slurm for, and whether it is a one-GPU request that gpumem may replace. Used by gpumemd.
//
// Pure functions over values: no clock, no files, no Slurm. Which options matter, and how Slurm writes them (22.05 to
// 26.05), was found by running them. The words of `reason` are read by people, after "left as it is: ".
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "daemon/protocol/fields.h"

namespace gpumem::policy {

enum class Wish { automatic, off, size };

// One submission as the plugin sent it. Options are Slurm's long names and its own text of their values.
struct Request {
  std::string command;  // sbatch, salloc, srun
  Wish wish = Wish::automatic;
  std::uint64_t size_bytes = 0;  // with Wish::size
  std::string slurm_version;
  std::string working_directory;
  std::optional<std::string> script;  // the text, --wrap's included; nullopt: not known
  std::string script_path;
  bool is_wrap = false;
  std::vector<std::string> arguments;
  std::vector<std::string> environment;
  std::map<std::string, std::string> options;
  bool inside_job = false;
  bool heterogeneous = false;
  double deadline_s = 0;  // 0: the daemon's own

  // The option's text; empty when it is not set (Slurm's "unset" counts as not set).
  std::string option(const std::string& name) const;
  bool has(const std::string& name) const { return !option(name).empty(); }
  // "train.py", "job.sh", "wrap" or the command's name: what history shows.
  std::string script_name() const;
};

// Fails with protocol when a field that every request has is missing or nonsense.
Result<Request> parse_request(const protocol::Message& message);

enum class Asked {
  nothing,    // no GPU: not our business
  one_gpu,    // replaceable
  something,  // GPUs, but not a request that gpumem replaces: `reason`
};

struct GpuRequest {
  Asked asked = Asked::nothing;
  std::string type;                      // "a100" of gpu:a100:1, else empty
  std::string text;                      // as the user wrote it: "--gres=gpu:1"
  std::string reason;                    // with `something`
  std::vector<std::string> other_gres;   // what else --gres names, kept in the rewritten request
};

GpuRequest classify(const Request& request);

// Whole numbers of Slurm's options ("4", "1-1", "2-4"): nullopt when the text is something else.
std::optional<std::uint64_t> option_number(const std::string& text);

// Tasks that the request has: --ntasks, else --ntasks-per-node, else 1.
std::uint64_t task_count(const Request& request);

// "22.05.8" -> 2205; 0 when it is not a version.
unsigned slurm_release(const std::string& version);

}  // namespace gpumem::policy
