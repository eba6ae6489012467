// SPDX-License-Identifier: Apache-2.0
// gpumem.conf: what the administrator decides. Used by gpumemd and, for the socket's path, by the CLI.
//
// One structure a section; config_keys.cpp holds one table of keys a section (name, unit, range, help), which drives parsing,
// checking and --print-config. Defaults are the members' initialisers below. An unknown key, a wrong type and a value out
// of range are errors that name file and line; nothing is ignored. A Config is a plain value; reading blocks on the file.
// Sizes are bytes, times seconds.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace gpumem::config {

// A size in the file ("8GiB"), kept in bytes. 0: "none".
struct Bytes {
  std::uint64_t bytes = 0;
};

// A time limit in Slurm's form ("30", "2:00:00", "1-12"), kept in seconds. 0: "none".
struct SlurmTime {
  std::uint64_t seconds = 0;
};

struct DaemonSection {
  std::string socket;           // default: paths::daemon_socket()
  std::string socket_mode = "0666";
  std::string socket_group;
  std::string state_directory;  // default: paths::state_directory()
  std::string profiles_directory;  // default: paths::data_file("gpus")
  std::string log_level = "info";
  std::string log_file;
  std::vector<std::string> roles = {"home", "submit", "node"};
  std::vector<std::string> operators;
  std::int64_t connections_at_most = 512;
  double idle_timeout_s = 60;

  bool has_role(const std::string& role) const;
};

struct SlurmSection {
  std::string conf;           // SLURM_CONF for what asks Slurm; empty: the system's
  std::string facts_program;  // default: paths::internal_program("gpumem-slurm-facts")
  double refresh_s = 300;
  double timeout_s = 10;
};

struct SubmitSection {
  double probe_timeout_s = 60;
  double deadline_s = 90;
  std::int64_t probes_at_once = 0;
  std::int64_t probes_waiting = 200;
  std::int64_t probe_cpus = 0;
  Bytes probe_memory = {8ull << 30};
  std::int64_t stable_steps = 8;
  std::int64_t epoch_batches = 6;
  bool prove = true;
  bool cache = true;
  std::int64_t cache_days = 30;
  std::string probe_program;  // default: paths::internal_program("gpumem-probe")
};

struct MarginSection {
  double percent = 5;
  Bytes floor = {64ull << 20};
};

// [[pool]]: for which partitions, accounts and GPU models gpumem acts, and how.
struct PoolSection {
  std::string name;
  std::vector<std::string> partitions;  // empty: all
  std::vector<std::string> accounts;    // empty: all
  std::vector<std::string> gpus;        // as NVML prints them, or a unique part
  std::string method = "shard";
  std::string mode = "observe";
  std::int64_t shards_per_gpu = 0;      // MiB; 0: the profile's usable memory
  std::int64_t cpus_per_gpu = 0;        // 0: Slurm's DefCpuPerGPU
  Bytes mem_per_gpu = {0};              // 0: Slurm's DefMemPerGPU
  SlurmTime longest_time = {0};         // 0: any job may share
  bool reservations = false;
};

// `count` shared virtual GPUs of one model: what a node has instead of real ones, for demos and tests.
struct VirtualGpus {
  std::string gpu;  // as NVML prints it, or a unique part
  std::int64_t count = 1;
};

// [node]: the node role. Its keys are those of daemon/node.
struct NodeSection {
  bool enforce = true;
  std::vector<VirtualGpus> virtual_gpus;  // empty: the node's GPUs are real
  std::string name;     // Slurm's NodeName; empty: the host's short name
  std::string cluster;  // empty: slurm.conf's ClusterName
};

// Where a value came from: "default" or "FILE:LINE".
using Origins = std::map<std::string, std::string>;

struct Config {
  DaemonSection daemon;
  SlurmSection slurm;
  SubmitSection submit;
  MarginSection margin;
  NodeSection node;
  std::vector<PoolSection> pools;
  std::string file;   // what was read; empty: nothing, all defaults
  Origins origins;    // keyed "section.key" and "pool[0].key"; only what the file sets
};

// All defaults, with the paths of this installation.
Config defaults();

// Reads a file. Every error in it is in the message, one a line, each "FILE:LINE: sentence".
Result<Config> load(const std::string& path);

// The same for text; `name` stands for the file in messages.
Result<Config> parse(const std::string& text, const std::string& name);

// Every value in force as TOML, with unit and origin in a comment: what --print-config prints.
std::string print(const Config& config);

// Every key with default, unit and help, one a line: what the manual page's table is checked against.
std::string describe_keys();

// Slurm's time forms: minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]], UNLIMITED (0).
Result<std::uint64_t> parse_slurm_time(const std::string& text);

}  // namespace gpumem::config
