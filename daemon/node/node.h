// SPDX-License-Identifier: Apache-2.0
// The node role: prepares a task's GPU environment, and writes down what its job did. Used by gpumemd.
//
// The limit comes from Slurm's own allocation (shards), never from the token: a token serves history alone. Everything
// known of running jobs is in the database and the books, so a restart loses nothing: start() takes running jobs up
// again and ends those whose processes are gone.
//
// One Node in a process, on the loop thread; it refers to a History that outlives it. Each call commits before it
// returns, so an answer to the plugin means that the row is on the disk.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/result.h"
#include "daemon/node/devices.h"
#include "daemon/node/environment.h"
#include "daemon/node/meter_book.h"
#include "daemon/node/outcome.h"
#include "daemon/node/settings.h"
#include "daemon/node/workspaces.h"
#include "db/history.h"

namespace gpumem::node {

// How often tick() wants to be called.
inline constexpr double kTick_s = 10;

struct JobStart {
  std::uint32_t job_id = 0, step_id = 0, task_id = 0;
  std::optional<std::uint32_t> array_job_id, array_task_id;
  std::int32_t pid = 0;
  std::uint32_t user_id = 0;
  std::string user;
  std::string token;
  std::string shards;           // SLURM_SHARDS_ON_NODE: MiB; empty: none
  std::string gpus;             // SLURM_STEP_GPUS or SLURM_JOB_GPUS: "0,1"; empty: none
  std::string visible_devices;  // CUDA_VISIBLE_DEVICES
  std::vector<std::string> environment;  // the job's LD_PRELOAD and PATH
};

struct TaskEnd {
  std::uint32_t job_id = 0, step_id = 0, task_id = 0;
  std::int32_t pid = 0;
  int wait_status = 0;
};

// What a running job holds now.
struct JobNow {
  std::uint64_t used_bytes = 0, peak_bytes = 0;
};

class Node {
 public:
  // What happened that an admin should see: a sentence for the log. May be null.
  using Log = std::function<void(const std::string&)>;

  static Result<std::unique_ptr<Node>> start(Settings settings, db::History& history, Log log);

  Result<JobEnvironment> job_start(const JobStart& start);
  // The end of a task that is not known (it started while gpumemd was away) is no error.
  Status task_end(const TaskEnd& end);

  // Every kTick_s: takes back what dead processes held, ends tasks whose end was never told, samples contexts,
  // removes books of jobs that ended long ago.
  void tick();

  Devices& devices() { return *devices_; }
  const Settings& settings() const { return settings_; }
  void set_enforce(bool enforce) { settings_.enforce = enforce; }  // for jobs that start from now on
  // From the job's meter book; on virtual GPUs from the device's book where the meter saw nothing.
  Result<JobNow> now(const db::Job& job);

 private:
  Node(Settings settings, db::History& history, Log log);
  Status adopt_running_jobs();
  // Ends the task that nobody reported, `cause` and `note` saying why its status is not known.
  Status end_unreported(db::Job& job, std::vector<db::Task>& tasks, db::Task& task, db::Cause cause, const std::string& note);
  // Reads the books into the job's peak and refusals, concludes it, and writes job and task.
  Status write_outcome(db::Job& job, const std::vector<db::Task>& tasks, const db::Task& ended);
  void measure(db::Job& job);
  // Adds what the job's meter saw of cuDNN's workspaces to the node's table.
  void learn_workspaces(const db::Job& job);
  Refusals refusals_of(const db::Job& job);
  bool is_running(const db::Task& task) const;
  void remove_old_books(const std::vector<db::Job>& running);
  void say(const std::string& sentence) const { if (log_) log_(sentence); }

  Settings settings_;
  db::History& history_;
  Log log_;
  std::unique_ptr<Devices> devices_;
  std::string boot_id_;
  // Tasks whose process is gone and whose end is not told yet: (job row, step, task) -> monotonic time of the first sight.
  std::map<std::tuple<std::int64_t, std::uint32_t, std::uint32_t>, double> gone_since_s_;
};

// The key of a run in books: "17", "17-2" once it was requeued.
std::string job_key(const db::Job& job);

// A process's start time in clock ticks since boot (proc(5), stat field 22); 0 when there is no such process.
std::uint64_t start_ticks(const std::string& proc, std::int32_t pid);

}  // namespace gpumem::node
