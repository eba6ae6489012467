// SPDX-License-Identifier: Apache-2.0
// How decisions and jobs stand in their tables.
#include "db/rows.h"

namespace gpumem::db {

Decision read_decision(Statement& s) {
  Decision d;
  s.read(d.token);
  s.read(d.submitted_s);
  s.read(d.user_id);
  s.read(d.user);
  s.read(d.account);
  s.read(d.partition);
  s.read(d.pool);
  s.read(d.mode);
  s.read(d.command);
  s.read(d.script_name);
  s.read(d.command_line);
  s.read(d.working_directory);
  s.read(d.requested);
  s.read(d.fingerprint);
  s.read(d.family);
  s.read(d.gpu);
  s.read(d.rule);
  s.read(d.estimate_json);
  s.read(d.need_bytes);
  s.read(d.margin.bytes);
  s.read(d.margin.percent);
  s.read(d.margin.margin_id);
  s.read(d.limit_mib);
  s.read(d.action);
  s.read(d.gres);
  s.read(d.line);
  s.read(d.reason);
  return d;
}

void bind_decision(Statement& s, const Decision& d) {
  s.bind(d.token).bind(d.submitted_s).bind(d.user_id).bind(d.user).bind(d.account).bind(d.partition).bind(d.pool);
  s.bind(d.mode).bind(d.command).bind(d.script_name).bind(d.command_line).bind(d.working_directory).bind(d.requested);
  s.bind(d.fingerprint).bind(d.family).bind(d.gpu).bind(d.rule).bind(d.estimate_json).bind(d.need_bytes);
  s.bind(d.margin.bytes).bind(d.margin.percent).bind(d.margin.margin_id).bind(d.limit_mib).bind(d.action).bind(d.gres);
  s.bind(d.line).bind(d.reason);
}

Job read_job(Statement& s) {
  Job j;
  s.read(j.id);
  s.read(j.cluster);
  s.read(j.job_id);
  s.read(j.array_job_id);
  s.read(j.array_task_id);
  s.read(j.node);
  s.read(j.run);
  s.read(j.token);
  s.read(j.user_id);
  s.read(j.user);
  s.read(j.started_s);
  s.read(j.ended_s);
  s.read(j.limit_mib);
  s.read(j.enforced);
  s.read(j.is_virtual);
  s.read(j.gpu);
  s.read(j.device_uuid);
  s.read(j.device_index);
  s.read(j.meter_book);
  s.read(j.measured_peak_bytes);
  s.read(j.context_bytes);
  s.read(j.out_of_memory_count);
  s.read(j.out_of_memory_bytes);
  s.read(j.exit_status);
  s.read(j.signal);
  j.cause = cause_from_name(s.read<std::string>()).value_or(Cause::unknown);
  s.read(j.note);
  return j;
}

void bind_job_values(Statement& s, const Job& j) {
  s.bind(j.token).bind(j.user_id).bind(j.user).bind(j.started_s).bind(j.ended_s).bind(j.limit_mib).bind(j.enforced);
  s.bind(j.is_virtual).bind(j.gpu).bind(j.device_uuid).bind(j.device_index).bind(j.meter_book).bind(j.measured_peak_bytes);
  s.bind(j.context_bytes).bind(j.out_of_memory_count).bind(j.out_of_memory_bytes).bind(j.exit_status).bind(j.signal);
  s.bind(std::string(cause_name(j.cause))).bind(j.note);
}

}  // namespace gpumem::db
