// SPDX-License-Identifier: Apache-2.0
// The node role: what happens when tasks start and end. Re-adoption and housekeeping: watch.cpp.
#include "daemon/node/node.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <utility>

#include "base/clock.h"
#include "base/file.h"
#include "base/size.h"

namespace gpumem::node {
namespace {

std::optional<std::uint64_t> parse_count(const std::string& text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// The allocated devices in the order in which the task sees them. With several, Slurm's "gpus" and
// CUDA_VISIBLE_DEVICES have the same order.
std::vector<Device> allocated_devices(const Devices& devices, const JobStart& start) {
  std::vector<Device> allocated;
  for (const auto& index : split_list(start.gpus.empty() ? start.visible_devices : start.gpus, ",")) {
    const auto number = parse_count(index);
    const Device* device = number ? devices.find(static_cast<int>(*number)) : nullptr;
    Device unknown;
    unknown.index = number ? static_cast<int>(*number) : -1;
    allocated.push_back(device != nullptr ? *device : unknown);
  }
  return allocated;
}

db::Task* find_task(std::vector<db::Task>& tasks, std::uint32_t step_id, std::uint32_t task_id) {
  for (auto& task : tasks) {
    if (task.step_id == step_id && task.task_id == task_id) return &task;
  }
  return nullptr;
}

}  // namespace

std::string job_key(const db::Job& job) {
  return std::to_string(job.job_id) + (job.run > 1 ? "-" + std::to_string(job.run) : "");
}

std::uint64_t start_ticks(const std::string& proc, std::int32_t pid) {
  const std::string stat = read_file(proc + "/" + std::to_string(pid) + "/stat", 1 << 16).value_or("");
  // The second field is the program's name in parentheses and may hold anything; field 3 follows the last ')'.
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return 0;
  const auto fields = split_list(stat.substr(name_end + 1), " ");
  constexpr std::size_t kStartTime = 22 - 3;
  return fields.size() > kStartTime ? parse_count(fields[kStartTime]).value_or(0) : 0;
}

Node::Node(Settings settings, db::History& history, Log log)
    : settings_(std::move(settings)), history_(history), log_(std::move(log)) {}

Result<std::unique_ptr<Node>> Node::start(Settings settings, db::History& history, Log log) {
  std::unique_ptr<Node> node(new Node(std::move(settings), history, std::move(log)));
  auto devices = Devices::open(node->settings_);
  if (!devices) return devices.error();
  node->devices_ = std::move(*devices);
  if (auto made = make_directories(node->settings_.state_directory + "/jobs", 0711); !made) return made.error();
  node->boot_id_ = read_file(node->settings_.proc + "/sys/kernel/random/boot_id", 256).value_or("");
  while (!node->boot_id_.empty() && node->boot_id_.back() == '\n') node->boot_id_.pop_back();
  if (auto adopted = node->adopt_running_jobs(); !adopted) return adopted.error();
  return node;
}

Result<JobEnvironment> Node::job_start(const JobStart& start) {
  if (start.step_id == kExternStep) return JobEnvironment();
  const double now_s = unix_time_s();
  const auto given_shards = parse_count(start.shards.empty() ? "0" : start.shards);
  if (!given_shards) {
    return Error{ErrorKind::protocol, "job " + std::to_string(start.job_id) + ": SLURM_SHARDS_ON_NODE is \"" + start.shards + "\", not a number"};
  }
  const std::uint64_t shards = *given_shards;  // 0: none
  auto decision = history_.find_decision(db::Viewer::user(start.user_id), start.token);
  if (!decision) return decision.error();
  const bool wants_shards = *decision && (*decision)->action == "rewrite";

  auto newest = history_.newest_run(settings_.cluster, start.job_id, settings_.node);
  if (!newest) return newest.error();
  std::vector<db::Task> tasks;
  bool same_run = newest->has_value();
  if (same_run) {
    auto known = history_.tasks_of((*newest)->id);
    if (!known) return known.error();
    tasks = std::move(*known);
    // A job id that comes back: its tasks have ended, or are others. A message sent twice is the same process.
    const db::Task* before = find_task(tasks, start.step_id, start.task_id);
    const bool repeated = before != nullptr && !before->ended_s && before->pid == start.pid;
    same_run = (*newest)->user_id == start.user_id && (before == nullptr || repeated);
  }

  if (shards == 0 && start.gpus.empty() && !wants_shards) return JobEnvironment();
  if (shards == 0 && wants_shards && same_run && (*newest)->limit_mib) {
    return environment_without_gpu(settings_);  // a step with --gres=none of a job that has its shards
  }

  db::Job job;
  if (same_run) {
    job = **newest;
  } else {
    if (*newest && !(*newest)->ended_s) {
      // The run before was never reported to its end.
      for (auto& task : tasks) {
        if (task.ended_s) continue;
        if (auto ended = end_unreported(**newest, tasks, task, db::Cause::killed, "it was requeued"); !ended) return ended.error();
      }
    }
    job.cluster = settings_.cluster;
    job.job_id = start.job_id;
    job.node = settings_.node;
    job.run = *newest ? (*newest)->run + 1 : 1;
    job.started_s = now_s;
  }
  const std::vector<Device> devices = allocated_devices(*devices_, start);
  job.array_job_id = start.array_job_id;
  job.array_task_id = start.array_task_id;
  job.token = start.token;
  job.user_id = start.user_id;
  job.user = start.user;
  job.is_virtual = devices_->are_virtual();
  if (shards > 0) job.limit_mib = std::max(shards, job.limit_mib.value_or(0));  // a step may have less than its job
  job.enforced = settings_.enforce && job.limit_mib.has_value();
  if (!devices.empty() && job.device_index < 0) {
    job.device_index = devices[0].index;
    job.gpu = devices[0].gpu;
    job.device_uuid = devices[0].uuid;
  }
  job.ended_s.reset();
  job.cause = db::Cause::unknown;

  db::Task task;
  task.step_id = start.step_id;
  task.task_id = start.task_id;
  task.pid = start.pid;
  task.pid_start_ticks = start_ticks(settings_.proc, start.pid);
  task.boot_id = boot_id_;
  task.started_s = now_s;

  JobEnvironment answer;
  if (shards == 0 && wants_shards) {
    answer.refuse = "job " + std::to_string(start.job_id) + " was submitted with " + (*decision)->gres +
                    ", but Slurm gave it no shards on this node, so its memory could not be limited; submit it again";
    task.ended_s = now_s;
    task.cause = job.cause = db::Cause::refused;
    job.ended_s = now_s;
    job.note = answer.refuse;
  } else {
    TaskBooks books;
    books.job_key = job_key(job);
    books.meter_book = job.meter_book = settings_.state_directory + "/jobs/" + books.job_key;
    books.device_book = devices_->book_path();
    for (const auto& device : devices) books.context_bytes = std::max(books.context_bytes, device.context_bytes);
    const std::uint64_t limit_bytes = job.enforced ? *job.limit_mib * kMiB : 0;
    if (!same_run) {  // of a job with this id before the database was lost
      ::remove(job.meter_book.c_str());
      ::remove(seen_workspaces_path(job.meter_book).c_str());
    }
    if (auto made = prepare_meter_book(job.meter_book, devices, books.job_key, limit_bytes, start.user_id); !made) return made.error();
    if (!devices_->are_virtual()) {
      // A job is worth more than what its meter could teach.
      if (auto made = prepare_seen_workspaces(job.meter_book, start.user_id); made) books.seen_workspaces = seen_workspaces_path(job.meter_book);
      else say(made.error().message);
    }
    answer = environment_with_gpu(settings_, books, start.environment);
  }

  auto written = history_.in_one_commit([&]() -> Status {
    if (same_run) {
      if (auto updated = history_.update_job(job); !updated) return updated;
    } else {
      auto row = history_.start_job(job);
      if (!row) return row.error();
      job.id = *row;
    }
    task.job_row = job.id;
    return history_.start_task(task);
  });
  if (!written) return written.error();
  if (!answer.refuse.empty()) say(answer.refuse);
  return answer;
}

Status Node::task_end(const TaskEnd& end) {
  if (end.step_id == kExternStep) return {};
  auto newest = history_.newest_run(settings_.cluster, end.job_id, settings_.node);
  if (!newest) return newest.error();
  if (!*newest) return {};
  db::Job& job = **newest;
  auto tasks = history_.tasks_of(job.id);
  if (!tasks) return tasks.error();
  db::Task* task = find_task(*tasks, end.step_id, end.task_id);
  if (task == nullptr || (end.pid != 0 && task->pid != end.pid) || task->cause == db::Cause::refused) return {};
  measure(job);
  end_task(*task, end.wait_status, task->ended_s.value_or(unix_time_s()), refusals_of(job));
  return write_outcome(job, *tasks, *task);
}

Refusals Node::refusals_of(const db::Job& job) {
  Refusals refusals;
  if (!job.meter_book.empty()) {
    if (auto metered = read_meter_book(job.meter_book, job_key(job))) refusals.by_limit = metered->out_of_memory_count;
  }
  if (auto use = devices_->use_of_job(job_key(job))) {
    for (const auto& device : use->devices) refusals.by_device += device.out_of_memory_count;
  }
  return refusals;
}

void Node::learn_workspaces(const db::Job& job) {
  if (job.meter_book.empty() || job.is_virtual) return;
  const Device* device = devices_->find(job.device_index);
  const std::uint64_t most_bytes = device != nullptr && device->usable_bytes != 0 ? device->usable_bytes : ~std::uint64_t{0};
  auto merged = collect_workspaces(settings_.state_directory, job.meter_book, job.gpu, most_bytes);
  if (!merged) return say(merged.error().message);
  if (merged->added + merged->grown > 0) {
    say("job " + std::to_string(job.job_id) + ": learned the workspaces of " + std::to_string(merged->added) + " cuDNN plans on " + job.gpu +
        (merged->grown > 0 ? " and larger ones of " + std::to_string(merged->grown) : ""));
  }
}

void Node::measure(db::Job& job) {
  auto grow = [](auto& value, std::uint64_t measured) { value = std::max<std::uint64_t>(value, measured); };
  std::string trouble;
  if (!job.meter_book.empty()) {
    auto metered = read_meter_book(job.meter_book, job_key(job));
    if (!metered) {
      trouble = metered.error().message;
    } else if (metered->processes > 0) {
      job.measured_peak_bytes = std::max(job.measured_peak_bytes.value_or(0), metered->peak_bytes);
      grow(job.context_bytes, metered->context_bytes);
      grow(job.out_of_memory_count, metered->out_of_memory_count);
      grow(job.out_of_memory_bytes, metered->out_of_memory_bytes);
    }
  }
  if (auto use = devices_->use_of_job(job_key(job))) {
    std::uint64_t peak_bytes = 0;
    for (const auto& device : use->devices) {
      grow(peak_bytes, device.peak_bytes);
      grow(job.out_of_memory_count, device.out_of_memory_count);
      grow(job.out_of_memory_bytes, device.out_of_memory_bytes);
    }
    if (!job.measured_peak_bytes && peak_bytes > 0) {
      job.measured_peak_bytes = peak_bytes;
      trouble = "its processes ran without the meter (a script that replaces LD_PRELOAD?): the peak is the device's own count";
    }
  }
  if (!job.measured_peak_bytes && trouble.empty()) trouble = "none of its processes took GPU memory through the meter";
  job.note = trouble;
}

Status Node::write_outcome(db::Job& job, const std::vector<db::Task>& tasks, const db::Task& ended) {
  conclude(job, tasks);
  learn_workspaces(job);
  if (job.cause == db::Cause::completed && job.out_of_memory_count > 0 && job.note.empty()) {
    job.note = "memory was refused " + std::to_string(job.out_of_memory_count) + " times and the job went on";
  }
  return history_.in_one_commit([&]() -> Status {
    if (auto updated = history_.update_task(ended); !updated) return updated;
    return history_.update_job(job);
  });
}

Result<JobNow> Node::now(const db::Job& job) {
  JobNow now;
  if (!job.meter_book.empty()) {
    auto metered = read_meter_book(job.meter_book, job_key(job));
    if (!metered) return metered.error();
    now = {metered->used_bytes, metered->peak_bytes};
  }
  if (now.peak_bytes == 0) {
    if (auto use = devices_->use_of_job(job_key(job))) {
      for (const auto& device : use->devices) {
        now.used_bytes = std::max(now.used_bytes, device.used_bytes);
        now.peak_bytes = std::max(now.peak_bytes, device.peak_bytes);
      }
    }
  }
  return now;
}

}  // namespace gpumem::node
