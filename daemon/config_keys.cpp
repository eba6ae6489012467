// SPDX-License-Identifier: Apache-2.0
// Every key of gpumem.conf, once: name, member, unit, help, limits. Used by gpumemd.
#include "daemon/config_table.h"

namespace gpumem::config {

const std::vector<Key<DaemonSection>>& daemon_keys() {
  static const std::vector<Key<DaemonSection>> keys = {
      {"socket", &DaemonSection::socket, "", "Unix socket that the plugin and the CLI talk to.", {}},
      {"socket_mode", &DaemonSection::socket_mode, "", "The socket's mode, octal.", {}},
      {"socket_group", &DaemonSection::socket_group, "", "The socket's group; empty: the daemon's.", {}},
      {"state_directory", &DaemonSection::state_directory, "", "Database and books; on a local disk.", {}},
      {"profiles_directory", &DaemonSection::profiles_directory, "", "GPU profiles (for packagers and tests).", {}},
      {"log_level", &DaemonSection::log_level, "", "How much is logged.", {"trace", "debug", "info", "warning", "error"}},
      {"log_file", &DaemonSection::log_file, "", "Log file; empty: standard error (the journal).", {}},
      {"roles", &DaemonSection::roles, "", "What this host does.", {"home", "submit", "node"}},
      {"operators", &DaemonSection::operators, "",
       "User names, or group:NAME, who see all rows and set margins; root and SlurmUser always do.", {}},
      {"connections_at_most", &DaemonSection::connections_at_most, "", "Connections at one time.", {}, 4, 65536},
      {"idle_timeout_s", &DaemonSection::idle_timeout_s, "s", "A connection that asks nothing for so long is closed.", {}, 1, 86400},
  };
  return keys;
}

const std::vector<Key<SlurmSection>>& slurm_keys() {
  static const std::vector<Key<SlurmSection>> keys = {
      {"conf", &SlurmSection::conf, "", "slurm.conf to use; empty: the system's.", {}},
      {"facts_program", &SlurmSection::facts_program, "", "Program that reads Slurm's configuration through libslurm (for packagers and tests).", {}},
      {"refresh_s", &SlurmSection::refresh_s, "s", "How often Slurm's configuration is read again.", {}, 1, 86400},
      {"timeout_s", &SlurmSection::timeout_s, "s", "How long reading it may take.", {}, 0.1, 600},
  };
  return keys;
}

const std::vector<Key<SubmitSection>>& submit_keys() {
  static const std::vector<Key<SubmitSection>> keys = {
      {"probe_timeout_s", &SubmitSection::probe_timeout_s, "s", "Longest run of one probe.", {}, 1, 86400},
      {"deadline_s", &SubmitSection::deadline_s, "s", "Longest time that a submission waits for its answer.", {}, 1, 86400},
      {"probes_at_once", &SubmitSection::probes_at_once, "", "Probes that run at one time; 0: half the cores.", {}, 0, 4096},
      {"probes_waiting", &SubmitSection::probes_waiting, "", "Probes that wait at one time; more are not probed.", {}, 0, 100000},
      {"probe_cpus", &SubmitSection::probe_cpus, "", "CPUs that one probe may use; 0: any.", {}, 0, 4096},
      {"probe_memory", &SubmitSection::probe_memory, "size", "Host memory that one probe may use; \"none\": no bound.", {}},
      {"stable_steps", &SubmitSection::stable_steps, "steps", "A probe ends when its peak has not grown for so many optimizer steps.", {}, 1, 100000},
      {"epoch_batches", &SubmitSection::epoch_batches, "batches", "Batches of an epoch that a probe runs.", {}, 1, 100000},
      {"prove", &SubmitSection::prove, "", "Run the program a second time within the smallest limit that may be enough, where the time allows.", {}},
      {"cache", &SubmitSection::cache, "", "Answer a repeated submission from the probe before.", {}},
      {"cache_days", &SubmitSection::cache_days, "days", "How long a probe's answer is kept.", {}, 1, 3650},
      {"probe_program", &SubmitSection::probe_program, "", "Program that runs a probe (for packagers and tests).", {}},
  };
  return keys;
}

const std::vector<Key<MarginSection>>& margin_keys() {
  static const std::vector<Key<MarginSection>> keys = {
      {"percent", &MarginSection::percent, "%", "Margin in percent of the need, where no margin set with 'gpumem margin' applies.", {}, 0, 400},
      {"floor", &MarginSection::floor, "size", "The margin is at least this; \"none\": no floor.", {}},
  };
  return keys;
}

const std::vector<Key<PoolSection>>& pool_keys() {
  static const std::vector<Key<PoolSection>> keys = {
      {"name", &PoolSection::name, "", "The pool's name in history and margins.", {}, 0, 0, true},
      {"partitions", &PoolSection::partitions, "", "Partitions it is for; none named: all.", {}},
      {"accounts", &PoolSection::accounts, "", "Accounts it is for; none named: all.", {}},
      {"gpus", &PoolSection::gpus, "", "Its GPU models, as NVML prints them; 'gpumem gpus' lists those known.", {}, 0, 0, true},
      {"method", &PoolSection::method, "", "How GPU memory is requested.", {"shard"}},
      {"mode", &PoolSection::mode, "",
       "off; observe (decide and record only); advise (also print); apply (also rewrite the request).",
       {"off", "observe", "advise", "apply"}},
      {"shards_per_gpu", &PoolSection::shards_per_gpu, "MiB", "Shards that Slurm has per GPU, 1 MiB each; 0: the model's usable memory.", {}, 0, 1e8},
      {"cpus_per_gpu", &PoolSection::cpus_per_gpu, "", "CPUs that a one-GPU request gets by default; 0: Slurm's DefCpuPerGPU.", {}, 0, 100000},
      {"mem_per_gpu", &PoolSection::mem_per_gpu, "size", "Memory that a one-GPU request gets by default; \"none\": Slurm's DefMemPerGPU.", {}},
      {"longest_time", &PoolSection::longest_time, "Slurm time", "Jobs with a longer time limit get whole GPUs; \"none\": any job may share.", {}},
      {"reservations", &PoolSection::reservations, "", "Act on jobs in reservations too.", {}},
  };
  return keys;
}

const std::vector<Key<NodeSection>>& node_keys() {
  static const std::vector<Key<NodeSection>> keys = {
      {"enforce", &NodeSection::enforce, "", "Hold jobs to their limit; false: measure only.", {}},
      {"virtual_gpus", &NodeSection::virtual_gpus, "",
       "Shared virtual GPUs instead of real ones, for demos and tests: [{gpu = \"NAME\", count = 2}].", {}, 1, 16},
      {"name", &NodeSection::name, "", "This host's NodeName in Slurm; empty: its short host name.", {}},
      {"cluster", &NodeSection::cluster, "", "Slurm's ClusterName; empty: as slurm.conf says.", {}},
  };
  return keys;
}

}  // namespace gpumem::config
