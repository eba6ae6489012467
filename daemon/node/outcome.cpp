// SPDX-License-Identifier: Apache-2.0
// From how tasks ended and what the books counted to a job's outcome.
#include "daemon/node/outcome.h"

#include <sys/wait.h>

#include <algorithm>

namespace gpumem::node {
namespace {

int severity(db::Cause cause) {
  switch (cause) {
    case db::Cause::completed: return 0;
    case db::Cause::unknown: return 1;
    case db::Cause::daemon_restart: return 2;
    case db::Cause::node_lost: return 3;
    case db::Cause::killed: return 4;
    case db::Cause::failed: return 5;
    case db::Cause::refused: return 6;
    case db::Cause::oom_on_device: return 7;
    case db::Cause::oom_on_limit: return 8;
  }
  return 1;
}

}  // namespace

void end_task(db::Task& task, int wait_status, double now_s, const Refusals& refusals) {
  task.ended_s = now_s;
  task.exit_status.reset();
  task.signal = 0;
  if (WIFEXITED(wait_status)) {
    task.exit_status = WEXITSTATUS(wait_status);
    task.cause = *task.exit_status == 0 ? db::Cause::completed : db::Cause::failed;
  } else {
    task.signal = WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : 0;
    task.cause = db::Cause::killed;
  }
  if (task.cause == db::Cause::completed) return;
  // A cancelled job (scancel, time limit) that had been refused memory before was still cancelled.
  if (task.cause == db::Cause::killed) return;
  if (refusals.by_limit > 0) {
    task.cause = db::Cause::oom_on_limit;
  } else if (refusals.by_device > 0) {
    task.cause = db::Cause::oom_on_device;
  }
}

void conclude(db::Job& job, const std::vector<db::Task>& tasks) {
  const db::Task* decisive = nullptr;
  double last_end_s = 0;
  for (const auto& task : tasks) {
    if (!task.ended_s) {
      job.ended_s.reset();
      job.exit_status.reset();
      job.signal = 0;
      job.cause = db::Cause::unknown;
      return;
    }
    last_end_s = std::max(last_end_s, *task.ended_s);
    const bool batch = task.step_id == kBatchStep;
    const bool has_batch = decisive != nullptr && decisive->step_id == kBatchStep;
    if (decisive == nullptr || batch || (!has_batch && severity(task.cause) > severity(decisive->cause))) decisive = &task;
  }
  if (decisive == nullptr) return;
  job.ended_s = last_end_s;
  job.exit_status = decisive->exit_status;
  job.signal = decisive->signal;
  job.cause = decisive->cause;
}

}  // namespace gpumem::node
