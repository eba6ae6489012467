// SPDX-License-Identifier: Apache-2.0
// The node role between messages: taking running jobs up again after a restart, tasks whose end nobody told, old books.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/clock.h"
#include "daemon/node/node.h"

namespace gpumem::node {
namespace {

// slurmstepd tells a task's end after its process is gone; only then is the end nobody's news.
constexpr double kUnreported_s = 60;
// A job's next step may come long after the one before; its book is made anew then, so nothing but a peak that is in
// the history already is lost.
constexpr double kOldBook_s = 3600;

}  // namespace

bool Node::is_running(const db::Task& task) const {
  if (task.boot_id != boot_id_) return false;
  const std::uint64_t ticks = start_ticks(settings_.proc, task.pid);
  return ticks != 0 && (task.pid_start_ticks == 0 || ticks == task.pid_start_ticks);
}

Status Node::end_unreported(db::Job& job, std::vector<db::Task>& tasks, db::Task& task, db::Cause cause, const std::string& note) {
  measure(job);
  const Refusals refusals = refusals_of(job);
  task.ended_s = unix_time_s();
  task.cause = cause;
  conclude(job, tasks);
  job.note = note;
  if (refusals.by_limit + refusals.by_device > 0) job.note += "; it had been refused memory";
  say("job " + std::to_string(job.job_id) + ": the end of task " + std::to_string(task.task_id) + " was not reported: " + note);
  return history_.in_one_commit([&]() -> Status {
    if (auto updated = history_.update_task(task); !updated) return updated;
    return history_.update_job(job);
  });
}

Status Node::adopt_running_jobs() {
  auto jobs = history_.unfinished_jobs(settings_.node);
  if (!jobs) return jobs.error();
  for (auto& job : *jobs) {
    auto tasks = history_.tasks_of(job.id);
    if (!tasks) return tasks.error();
    for (auto& task : *tasks) {
      if (task.ended_s || is_running(task)) continue;
      const bool rebooted = task.boot_id != boot_id_;
      auto ended = end_unreported(job, *tasks, task, rebooted ? db::Cause::node_lost : db::Cause::daemon_restart,
                                  rebooted ? "the node was restarted while it ran" : "it ended while gpumemd was not running: its exit status is not known");
      if (!ended) return ended;
    }
    if (!job.ended_s) say("job " + std::to_string(job.job_id) + " runs on: taken up again");
  }
  return {};
}

void Node::tick() {
  devices_->reclaim();
  auto jobs = history_.unfinished_jobs(settings_.node);
  if (!jobs) return say(jobs.error().message);
  for (auto& job : *jobs) {
    auto tasks = history_.tasks_of(job.id);
    if (!tasks) return say(tasks.error().message);
    const std::uint64_t context_before = job.context_bytes;
    measure(job);
    // A context is seen only while its process lives: what was largest is kept.
    if (job.context_bytes != context_before) {
      job.note.clear();
      if (auto updated = history_.update_job(job); !updated) say(updated.error().message);
    }
    for (auto& task : *tasks) {
      if (task.ended_s || is_running(task)) continue;
      // The first sight of a missing process is remembered in memory only: a restart looks again.
      const auto key = std::tuple(task.job_row, task.step_id, task.task_id);
      const double first_s = gone_since_s_.emplace(key, monotonic_s()).first->second;
      if (monotonic_s() - first_s < kUnreported_s) continue;
      gone_since_s_.erase(key);
      auto ended = end_unreported(job, *tasks, task, db::Cause::killed, "its process is gone and nobody reported its exit status");
      if (!ended) say(ended.error().message);
    }
  }
  remove_old_books(*jobs);
}

void Node::remove_old_books(const std::vector<db::Job>& running) {
  std::set<std::string> in_use;
  for (const auto& job : running) in_use.insert({job.meter_book, seen_workspaces_path(job.meter_book)});
  std::error_code error;
  for (std::filesystem::directory_iterator entry(settings_.state_directory + "/jobs", error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string path = entry->path().string();
    struct stat file {};
    if (in_use.count(path) != 0 || ::lstat(path.c_str(), &file) != 0) continue;
    if (unix_time_s() - static_cast<double>(file.st_mtime) > kOldBook_s) ::unlink(path.c_str());
  }
}

}  // namespace gpumem::node
