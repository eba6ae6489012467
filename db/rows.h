// SPDX-License-Identifier: Apache-2.0
// How decisions and jobs stand in their tables: one list of columns each, and the code that reads and binds in that order.
// Used by db/ alone (gpumemd).
#pragma once

#include "db/database.h"
#include "db/history.h"

namespace gpumem::db {

// "d." and "j." are the aliases that every query uses.
inline constexpr char kDecisionColumns[] =
    "d.token, d.submitted_s, d.user_id, d.user, d.account, d.partition, d.pool, d.mode, d.command, d.script_name, "
    "d.command_line, d.working_directory, d.requested, d.fingerprint, d.family, d.gpu, d.rule, d.estimate_json, "
    "d.need_bytes, d.margin_bytes, d.margin_percent, d.margin_id, d.limit_mib, d.action, d.gres, d.line, d.reason";
inline constexpr int kDecisionColumnCount = 27;

inline constexpr char kJobColumns[] =
    "j.id, j.cluster, j.job_id, j.array_job_id, j.array_task_id, j.node, j.run, j.token, j.user_id, j.user, j.started_s, "
    "j.ended_s, j.limit_mib, j.enforced, j.is_virtual, j.gpu, j.device_uuid, j.device_index, j.meter_book, "
    "j.measured_peak_bytes, j.context_bytes, j.out_of_memory_count, j.out_of_memory_bytes, j.exit_status, j.signal, "
    "j.cause, j.note";

Decision read_decision(Statement& statement);
void bind_decision(Statement& statement, const Decision& decision);
Job read_job(Statement& statement);
// The columns behind the key: token … note.
void bind_job_values(Statement& statement, const Job& job);

}  // namespace gpumem::db
