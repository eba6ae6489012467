// SPDX-License-Identifier: Apache-2.0
// History: jobs and their tasks, as the node role writes them.
#include <string>

#include "db/database.h"
#include "db/history.h"
#include "db/rows.h"

namespace gpumem::db {
namespace {

Result<std::vector<Job>> read_jobs(Statement& select) {
  std::vector<Job> jobs;
  for (;;) {
    auto row = select.step();
    if (!row) return row.error();
    if (!*row) return jobs;
    jobs.push_back(read_job(select));
  }
}

}  // namespace

Result<std::optional<Job>> History::newest_run(const std::string& cluster, std::uint32_t job_id,
                                               const std::string& node) const {
  static const std::string sql = std::string("SELECT ") + kJobColumns +
                                 " FROM jobs j WHERE j.cluster = ? AND j.job_id = ? AND j.node = ? ORDER BY j.run DESC LIMIT 1";
  Statement select(*database_, sql.c_str(), "look a job up");
  select.bind(cluster).bind(job_id).bind(node);
  auto row = select.step();
  if (!row) return row.error();
  if (!*row) return std::optional<Job>();
  return std::optional<Job>(read_job(select));
}

Result<std::int64_t> History::start_job(const Job& job) {
  Statement insert(*database_,
                   "INSERT INTO jobs (cluster, job_id, array_job_id, array_task_id, node, run, token, user_id, user, "
                   "started_s, ended_s, limit_mib, enforced, is_virtual, gpu, device_uuid, device_index, meter_book, "
                   "measured_peak_bytes, context_bytes, out_of_memory_count, out_of_memory_bytes, exit_status, signal, "
                   "cause, note, linked) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, "
                   "?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, "
                   "EXISTS (SELECT 1 FROM decisions d WHERE d.token = ?7 AND d.user_id = ?8))",
                   "record a job");
  insert.bind(job.cluster).bind(job.job_id).bind(job.array_job_id).bind(job.array_task_id).bind(job.node).bind(job.run);
  bind_job_values(insert, job);
  if (auto done = insert.run(); !done) return done.error();
  return static_cast<std::int64_t>(sqlite3_last_insert_rowid(database_->handle()));
}

Status History::update_job(const Job& job) {
  Statement update(*database_,
                   "UPDATE jobs SET array_job_id = ?, array_task_id = ?, token = ?, user_id = ?, user = ?, started_s = ?, "
                   "ended_s = ?, limit_mib = ?, enforced = ?, is_virtual = ?, gpu = ?, device_uuid = ?, device_index = ?, "
                   "meter_book = ?, measured_peak_bytes = ?, context_bytes = ?, out_of_memory_count = ?, "
                   "out_of_memory_bytes = ?, exit_status = ?, signal = ?, cause = ?, note = ? WHERE id = ?",
                   "update a job");
  update.bind(job.array_job_id).bind(job.array_task_id);
  bind_job_values(update, job);
  update.bind(job.id);
  if (auto done = update.run(); !done) return done;
  if (sqlite3_changes(database_->handle()) == 0) {
    return Error{ErrorKind::not_found, "database " + database_->path() + ": there is no job row " + std::to_string(job.id)};
  }
  return {};
}

Status History::start_task(const Task& task) {
  // A retried message starts the same task again: the newer one counts.
  Statement insert(*database_, "INSERT OR REPLACE INTO tasks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", "record a task");
  insert.bind(task.job_row).bind(task.step_id).bind(task.task_id).bind(task.pid).bind(task.pid_start_ticks);
  insert.bind(task.boot_id).bind(task.started_s).bind(task.ended_s).bind(task.exit_status).bind(task.signal);
  insert.bind(std::string(cause_name(task.cause)));
  return insert.run();
}

Status History::update_task(const Task& task) {
  Statement update(*database_,
                   "UPDATE tasks SET ended_s = ?, exit_status = ?, signal = ?, cause = ? "
                   "WHERE job_row = ? AND step_id = ? AND task_id = ?",
                   "update a task");
  update.bind(task.ended_s).bind(task.exit_status).bind(task.signal).bind(std::string(cause_name(task.cause)));
  update.bind(task.job_row).bind(task.step_id).bind(task.task_id);
  if (auto done = update.run(); !done) return done;
  if (sqlite3_changes(database_->handle()) == 0) {
    return Error{ErrorKind::not_found, "database " + database_->path() + ": job row " + std::to_string(task.job_row) +
                                           " has no task " + std::to_string(task.step_id) + "." + std::to_string(task.task_id)};
  }
  return {};
}

Result<std::vector<Task>> History::tasks_of(std::int64_t job_row) const {
  Statement select(*database_,
                   "SELECT job_row, step_id, task_id, pid, pid_start_ticks, boot_id, started_s, ended_s, exit_status, "
                   "signal, cause FROM tasks WHERE job_row = ? ORDER BY started_s, step_id, task_id",
                   "read a job's tasks");
  select.bind(job_row);
  std::vector<Task> tasks;
  for (;;) {
    auto row = select.step();
    if (!row) return row.error();
    if (!*row) return tasks;
    Task task;
    select.read(task.job_row);
    select.read(task.step_id);
    select.read(task.task_id);
    select.read(task.pid);
    select.read(task.pid_start_ticks);
    select.read(task.boot_id);
    select.read(task.started_s);
    select.read(task.ended_s);
    select.read(task.exit_status);
    select.read(task.signal);
    task.cause = cause_from_name(select.read<std::string>()).value_or(Cause::unknown);
    tasks.push_back(std::move(task));
  }
}

Result<std::vector<Job>> History::unfinished_jobs(const std::string& node) const {
  static const std::string sql =
      std::string("SELECT ") + kJobColumns + " FROM jobs j WHERE j.node = ? AND j.ended_s IS NULL ORDER BY j.id";
  Statement select(*database_, sql.c_str(), "read the running jobs");
  select.bind(node);
  return read_jobs(select);
}

}  // namespace gpumem::db
