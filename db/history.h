// SPDX-License-Identifier: Apache-2.0
// History: everything that gpumemd remembers: decisions, probes, jobs with their outcomes, margins. Used by gpumemd alone.
//
// Purpose. The only door to the database; no other folder writes SQL. Whoever reads rows for a person passes a Viewer,
// so that nobody can forget who may see what.
//
// Ownership and threads. A History owns one SQLite connection. It belongs to one thread (gpumemd: the event loop's);
// other processes may have the same file open (WAL). Structs are plain values.
//
// Durability. Every function that changes something returns ok only after the commit has reached the disk
// (WAL, synchronous=FULL): reply to a peer after it returns. Several changes in one commit: in_one_commit().
//
// Errors. kind: unavailable (locked by another process beyond the busy time, disk full: try again), io (disk or file),
// unsupported (network file system, newer schema), not_found, invalid_argument, internal. Messages carry the file's
// path and SQLite's extended code.
//
// Units: bytes, MiB where named, seconds since the epoch (UTC) as `_s`.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace gpumem::db {

class Database;

// Who asks. Users see rows of their own uid; operators see all.
class Viewer {
 public:
  static Viewer user(std::uint32_t user_id) { return Viewer(user_id, false); }
  static Viewer sees_all() { return Viewer(0, true); }

  bool all() const { return all_; }
  std::uint32_t user_id() const { return user_id_; }

 private:
  Viewer(std::uint32_t user_id, bool all) : user_id_(user_id), all_(all) {}
  std::uint32_t user_id_;
  bool all_;
};

// The margin that was applied to a need. `margin_id` 0: the configuration's default.
struct AppliedMargin {
  std::uint64_t bytes = 0;
  double percent = 0;
  std::int64_t margin_id = 0;
};

// What the daemon answered at submit. Unknown numbers are nullopt, unknown texts empty.
struct Decision {
  std::string token;
  double submitted_s = 0;
  std::uint32_t user_id = 0;
  std::string user;
  std::string account;
  std::string partition;
  std::string pool;             // empty: no pool was found
  std::string mode;             // the pool's mode: off, observe, advise, apply
  std::string command;          // sbatch, salloc, srun
  std::string script_name;      // the file's base name, "wrap" or the program
  std::string command_line;
  std::string working_directory;
  std::string requested;        // what the user asked for: "gres=gpu:1"
  std::string fingerprint;
  std::string family;
  std::string gpu;              // model as NVML prints it
  std::string rule;             // user, measured, probe, family, whole_gpu, …
  std::string estimate_json;    // contracts: Estimate; empty when there was none
  std::optional<std::uint64_t> need_bytes;
  AppliedMargin margin;
  std::optional<std::uint64_t> limit_mib;
  std::string action;           // keep, rewrite
  std::string gres;             // what the job was submitted with when rewritten: "shard:6144"
  std::string line;             // what the user read
  std::string reason;           // why kept, or a note on the rule
};

// A file that a probe saw the program open: what a cached answer depends on.
struct ProbedFile {
  std::string path;
  std::uint64_t size_bytes = 0;
  std::int64_t mtime_ns = 0;
};

// One probe's answer. Answers are per user: nobody's code or estimate answers for another.
struct Probe {
  std::int64_t id = 0;          // given by record_probe()
  std::uint32_t user_id = 0;
  std::string fingerprint;
  std::string family;
  std::string gpu;
  double finished_s = 0;
  double wall_s = 0;
  std::string status;           // the estimate's status
  std::string estimate_json;
  std::optional<std::uint64_t> need_bytes;
  std::vector<ProbedFile> files;
};

// How a job's use of the GPU ended. `unknown` while it runs.
enum class Cause {
  unknown,
  completed,
  failed,           // the program's own exit status
  killed,           // a signal: scancel, time limit, host memory
  oom_on_limit,     // the job's limit refused memory and the program failed
  oom_on_device,    // the device had no room although the limit had
  refused,          // gpumem did not let the task start
  daemon_restart,   // it ended while gpumemd was not running: its exit status is not known
  node_lost,        // the node was rebooted under it
};
const char* cause_name(Cause cause);
std::optional<Cause> cause_from_name(const std::string& name);

// One run of one job on one node: Slurm's allocation and what happened. A requeue is a new run with the same job id.
struct Job {
  std::int64_t id = 0;                     // row; given by start_job()
  std::string cluster;
  std::uint32_t job_id = 0;
  std::optional<std::uint32_t> array_job_id, array_task_id;
  std::string node;
  std::uint32_t run = 1;
  std::string token;                       // as the job brought it: trusted for history only
  std::uint32_t user_id = 0;
  std::string user;
  double started_s = 0;
  std::optional<double> ended_s;           // nullopt while a task runs
  std::optional<std::uint64_t> limit_mib;  // Slurm's shards; nullopt: a whole GPU
  bool enforced = false;
  bool is_virtual = false;                 // ran on shared virtual GPUs: not a measurement of a real GPU
  std::string gpu;
  std::string device_uuid;
  std::int32_t device_index = -1;          // on the node
  std::string meter_book;                  // path; empty when there is none
  std::optional<std::uint64_t> measured_peak_bytes;  // contexts included
  std::uint64_t context_bytes = 0;
  std::uint64_t out_of_memory_count = 0;   // refusals that the meter or device counted
  std::uint64_t out_of_memory_bytes = 0;   // size of the last refused request
  std::optional<std::int32_t> exit_status; // of the batch script, else of the last task that failed
  std::int32_t signal = 0;
  Cause cause = Cause::unknown;
  std::string note;                        // a sentence, where there is something to say
};

// A task of a job's step. (job row, step_id, task_id) is its key within a run.
struct Task {
  std::int64_t job_row = 0;
  std::uint32_t step_id = 0;
  std::uint32_t task_id = 0;
  std::int32_t pid = 0;
  std::uint64_t pid_start_ticks = 0;       // /proc/PID/stat's starttime: tells a reused pid; 0: not known
  std::string boot_id;                     // /proc/sys/kernel/random/boot_id
  double started_s = 0;
  std::optional<double> ended_s{};
  std::optional<std::int32_t> exit_status{};
  std::int32_t signal = 0;
  Cause cause = Cause::unknown;
};

// One line of history: a decision, the job that it became (once it runs), or a job that no decision is known for.
struct HistoryEntry {
  std::optional<Decision> decision;
  std::optional<Job> job;
};

struct HistoryFilter {
  std::optional<std::uint32_t> user_id{};  // only this user's rows (within what the Viewer sees)
  double since_s = 0;
  std::uint32_t limit = 50;              // newest first; 0: all
};

// A measured peak of an earlier run, newest first, for the rules "measured" and "family".
struct Measurement {
  std::uint32_t job_id = 0;
  double ended_s = 0;
  std::uint64_t peak_bytes = 0;
  std::optional<std::uint64_t> limit_mib;
  std::optional<std::uint64_t> need_bytes;  // what the decision of that run had estimated
  Cause cause = Cause::unknown;
  bool is_virtual = false;
};

// Whose need a margin is for. An empty field means any.
struct MarginScope {
  std::string pool{}, gpu{}, user{}, account{}, rule{};
  bool operator==(const MarginScope&) const = default;
};

struct Margin {
  std::int64_t id = 0;
  MarginScope scope;
  double percent = 0;             // of the need
  std::uint64_t floor_bytes = 0;  // at least this
  std::uint32_t set_by_user_id = 0;
  std::string set_by;
  double set_s = 0;
};

// One change of a margin, never deleted. nullopt: there was none before, or there is none after.
struct MarginChange {
  double at_s = 0;
  std::uint32_t by_user_id = 0;
  std::string by;
  MarginScope scope;
  std::optional<double> percent_before, percent_after;
  std::optional<std::uint64_t> floor_bytes_before, floor_bytes_after;
};

class History {
 public:
  // Opens or makes the file (mode 0600) and brings its schema up to date. Refuses a file on a network file system
  // and one written by a newer gpumem.
  static Result<History> open(const std::string& path);

  History(History&&) noexcept;
  History& operator=(History&&) noexcept;
  ~History();

  // Runs `work` in one transaction: everything it changes is committed together, or nothing when it fails.
  Status in_one_commit(const std::function<Status()>& work);

  // --- Decisions ---
  Status record_decision(const Decision& decision);
  // Writes all of an already recorded decision again: in mode observe the answer goes out before the probe has ended.
  Status amend_decision(const Decision& decision);
  Result<std::optional<Decision>> find_decision(Viewer viewer, const std::string& token) const;

  // --- Probes ---
  Result<std::int64_t> record_probe(const Probe& probe);
  // The user's newest probe of that fingerprint on that GPU, whatever its status; the caller compares its files.
  Result<std::optional<Probe>> find_probe(std::uint32_t user_id, const std::string& fingerprint, const std::string& gpu) const;
  // Forgets probes that finished before `before_s`; returns how many.
  Result<std::uint64_t> forget_probes(double before_s);

  // --- Jobs (the node role) ---
  // The run of a job on a node that a new task belongs to: the newest one; nullopt when there is none.
  Result<std::optional<Job>> newest_run(const std::string& cluster, std::uint32_t job_id, const std::string& node) const;
  Result<std::int64_t> start_job(const Job& job);
  // Writes all fields of the row `job.id` but its key (cluster, job_id, node, run).
  Status update_job(const Job& job);
  Status start_task(const Task& task);
  Status update_task(const Task& task);
  Result<std::vector<Task>> tasks_of(std::int64_t job_row) const;
  // Jobs of this node without an end: for the daemon's own use, at its start and while it watches.
  Result<std::vector<Job>> unfinished_jobs(const std::string& node) const;

  // --- What people ask ---
  Result<std::vector<HistoryEntry>> list(Viewer viewer, const HistoryFilter& filter) const;
  // By job id ("17", "17_3" for an array task, "17" also for all tasks of array 17) or by token; every run, newest first.
  // not_found when there is none, or none that the viewer may see: the two are not told apart.
  Result<std::vector<HistoryEntry>> show(Viewer viewer, const std::string& job_or_token) const;
  Result<std::vector<HistoryEntry>> running(Viewer viewer) const;

  // --- Measurements (rules "measured" and "family") ---
  // Runs with a known peak that ended, of this user, on this GPU model, newest first, at most `limit`. Virtual ones
  // only where asked: they come from the library that also made the estimate.
  Result<std::vector<Measurement>> measured_by_fingerprint(std::uint32_t user_id, const std::string& fingerprint,
                                                           const std::string& gpu, bool include_virtual,
                                                           std::uint32_t limit = 20) const;
  Result<std::vector<Measurement>> measured_by_family(std::uint32_t user_id, const std::string& family,
                                                      const std::string& gpu, bool include_virtual,
                                                      std::uint32_t limit = 20) const;

  // --- Margins ---
  Result<Margin> set_margin(const MarginScope& scope, double percent, std::uint64_t floor_bytes,
                            std::uint32_t by_user_id, const std::string& by, double at_s);
  // not_found when no margin has exactly this scope.
  Status unset_margin(const MarginScope& scope, std::uint32_t by_user_id, const std::string& by, double at_s);
  Result<std::vector<Margin>> margins() const;
  Result<std::vector<MarginChange>> margin_changes(std::uint32_t limit = 100) const;  // newest first
  // The margin in force for a need: of those whose named fields all match, the one that names most fields; among
  // equals the first in the order user, account, rule, gpu, pool. nullopt: none, use the configuration's default.
  Result<std::optional<Margin>> margin_for(const MarginScope& need) const;

 private:
  explicit History(std::unique_ptr<Database> database);
  std::unique_ptr<Database> database_;
};

}  // namespace gpumem::db
