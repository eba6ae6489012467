// SPDX-License-Identifier: Apache-2.0
// Rows of the history as JSON.
#include "daemon/home/row_json.h"

namespace gpumem::home {
namespace {

// "running" and "submitted" are the two outcomes that are not there yet.
std::string outcome_of(const db::HistoryEntry& entry) {
  if (!entry.job) return "submitted";
  if (!entry.job->ended_s) return "running";
  return db::cause_name(entry.job->cause);
}

}  // namespace

std::string job_name(const db::Job& job) {
  if (job.array_job_id && job.array_task_id) {
    return std::to_string(*job.array_job_id) + "_" + std::to_string(*job.array_task_id);
  }
  return std::to_string(job.job_id);
}

Json history_row(const db::HistoryEntry& entry) {
  const auto& decision = entry.decision;
  const auto& job = entry.job;
  Json row;
  row["job"] = job ? Json(job_name(*job)) : Json(nullptr);
  row["job_id"] = job ? Json(job->job_id) : Json(nullptr);
  row["run"] = job ? Json(job->run) : Json(nullptr);
  row["token"] = decision ? Json(decision->token) : Json(nullptr);
  row["user"] = decision ? decision->user : job->user;
  row["user_id"] = decision ? decision->user_id : job->user_id;
  row["name"] = decision ? text_or_null(decision->script_name) : Json(nullptr);
  row["submitted_s"] = decision ? Json(decision->submitted_s) : Json(nullptr);
  row["started_s"] = job ? Json(job->started_s) : Json(nullptr);
  row["ended_s"] = job ? or_null(job->ended_s) : Json(nullptr);
  row["pool"] = decision ? text_or_null(decision->pool) : Json(nullptr);
  row["gpu"] = text_or_null(job && !job->gpu.empty() ? job->gpu : decision ? decision->gpu : "");
  row["estimate_bytes"] = decision ? or_null(decision->need_bytes) : Json(nullptr);
  // Slurm's allocation is what was in force; before the job starts, what was asked for.
  std::optional<std::uint64_t> limit_mib;
  if (job) {
    limit_mib = job->limit_mib;
  } else if (decision && decision->action == "rewrite") {
    limit_mib = decision->limit_mib;
  }
  row["limit_bytes"] = limit_mib ? Json(*limit_mib << 20) : Json(nullptr);
  row["measured_peak_bytes"] = job ? or_null(job->measured_peak_bytes) : Json(nullptr);
  row["ratio"] = nullptr;
  if (decision && job && decision->need_bytes && *decision->need_bytes > 0 && job->measured_peak_bytes) {
    row["ratio"] = static_cast<double>(*job->measured_peak_bytes) / static_cast<double>(*decision->need_bytes);
  }
  row["rule"] = decision ? text_or_null(decision->rule) : Json(nullptr);
  row["action"] = decision ? Json(decision->action) : Json(nullptr);
  row["outcome"] = outcome_of(entry);
  row["virtual"] = job ? job->is_virtual : false;
  row["node"] = job ? Json(job->node) : Json(nullptr);
  row["exit_status"] = job ? or_null(job->exit_status) : Json(nullptr);
  return row;
}

Json whole_decision(const db::Decision& d) {
  Json object;
  object["token"] = d.token;
  object["submitted_s"] = d.submitted_s;
  object["user"] = d.user;
  object["user_id"] = d.user_id;
  object["account"] = text_or_null(d.account);
  object["partition"] = text_or_null(d.partition);
  object["pool"] = text_or_null(d.pool);
  object["mode"] = text_or_null(d.mode);
  object["command"] = text_or_null(d.command);
  object["name"] = text_or_null(d.script_name);
  object["command_line"] = text_or_null(d.command_line);
  object["working_directory"] = text_or_null(d.working_directory);
  object["requested"] = text_or_null(d.requested);
  object["fingerprint"] = text_or_null(d.fingerprint);
  object["family"] = text_or_null(d.family);
  object["gpu"] = text_or_null(d.gpu);
  object["rule"] = text_or_null(d.rule);
  object["need_bytes"] = or_null(d.need_bytes);
  object["margin_bytes"] = d.margin.bytes;
  object["margin_percent"] = d.margin.percent;
  object["margin_id"] = d.margin.margin_id;
  object["limit_mib"] = or_null(d.limit_mib);
  object["action"] = d.action;
  object["gres"] = text_or_null(d.gres);
  object["line"] = text_or_null(d.line);
  object["reason"] = text_or_null(d.reason);
  object["estimate"] = nullptr;
  if (!d.estimate_json.empty()) {
    Json estimate = Json::parse(d.estimate_json, nullptr, /*allow_exceptions=*/false);
    object["estimate"] = estimate.is_discarded() ? Json(d.estimate_json) : std::move(estimate);
  }
  return object;
}

Json whole_job(const db::Job& j, const std::vector<db::Task>& tasks) {
  Json object;
  object["job"] = job_name(j);
  object["job_id"] = j.job_id;
  object["array_job_id"] = or_null(j.array_job_id);
  object["array_task_id"] = or_null(j.array_task_id);
  object["run"] = j.run;
  object["cluster"] = text_or_null(j.cluster);
  object["node"] = j.node;
  object["user"] = j.user;
  object["user_id"] = j.user_id;
  object["started_s"] = j.started_s;
  object["ended_s"] = or_null(j.ended_s);
  object["runtime_s"] = j.ended_s ? Json(*j.ended_s - j.started_s) : Json(nullptr);
  object["limit_mib"] = or_null(j.limit_mib);
  object["enforced"] = j.enforced;
  object["virtual"] = j.is_virtual;
  object["gpu"] = text_or_null(j.gpu);
  object["device_index"] = j.device_index < 0 ? Json(nullptr) : Json(j.device_index);
  object["device_uuid"] = text_or_null(j.device_uuid);
  object["measured_peak_bytes"] = or_null(j.measured_peak_bytes);
  object["context_bytes"] = j.context_bytes;
  object["out_of_memory_count"] = j.out_of_memory_count;
  object["out_of_memory_bytes"] = j.out_of_memory_bytes;
  object["outcome"] = j.ended_s ? db::cause_name(j.cause) : "running";
  object["exit_status"] = or_null(j.exit_status);
  object["signal"] = j.signal == 0 ? Json(nullptr) : Json(j.signal);
  object["note"] = text_or_null(j.note);
  object["tasks"] = Json::array();
  for (const auto& task : tasks) {
    object["tasks"].push_back({{"step_id", task.step_id},
                               {"task_id", task.task_id},
                               {"started_s", task.started_s},
                               {"ended_s", or_null(task.ended_s)},
                               {"exit_status", or_null(task.exit_status)},
                               {"signal", task.signal == 0 ? Json(nullptr) : Json(task.signal)},
                               {"outcome", task.ended_s ? db::cause_name(task.cause) : "running"}});
  }
  return object;
}

Json scope_json(const db::MarginScope& scope) {
  return {{"pool", text_or_null(scope.pool)},
          {"gpu", text_or_null(scope.gpu)},
          {"user", text_or_null(scope.user)},
          {"account", text_or_null(scope.account)},
          {"rule", text_or_null(scope.rule)}};
}

Json margin_json(const db::Margin& margin) {
  Json object = scope_json(margin.scope);
  object["id"] = margin.id;
  object["percent"] = margin.percent;
  object["floor_bytes"] = margin.floor_bytes;
  object["set_by"] = margin.set_by;
  object["set_s"] = margin.set_s;
  return object;
}

Json margin_change_json(const db::MarginChange& change) {
  Json object = scope_json(change.scope);
  object["at_s"] = change.at_s;
  object["by"] = change.by;
  object["percent_before"] = or_null(change.percent_before);
  object["percent_after"] = or_null(change.percent_after);
  object["floor_bytes_before"] = or_null(change.floor_bytes_before);
  object["floor_bytes_after"] = or_null(change.floor_bytes_after);
  return object;
}

}  // namespace gpumem::home
