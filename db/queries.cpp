// SPDX-License-Identifier: Apache-2.0
// History: what people ask, and what earlier runs measured.
#include <algorithm>
#include <cctype>
#include <string>

#include "db/database.h"
#include "db/history.h"
#include "db/rows.h"

namespace gpumem::db {
namespace {

// A line of history is a decision with its job or NULLs, or a job without a decision. A token links only rows of one
// user. Each query below is answered from an index: the daemon's loop waits for it.
std::string columns() { return std::string(kDecisionColumns) + ", " + kJobColumns; }

// Decisions and the jobs that came of them.
constexpr char kDecisionsWithJobs[] = " d LEFT JOIN jobs j ON j.token = d.token AND j.user_id = d.user_id ";
// Jobs and the decisions that they came of.
constexpr char kJobsWithDecisions[] = " FROM jobs j LEFT JOIN decisions d ON d.token = j.token AND d.user_id = j.user_id ";
constexpr char kVisible[] = " AND (?1 OR j.user_id = ?2) ";
constexpr char kNewestFirst[] = " ORDER BY COALESCE(d.submitted_s, j.started_s) DESC, j.id DESC";

Result<std::vector<HistoryEntry>> read_entries(Statement& select) {
  std::vector<HistoryEntry> entries;
  for (;;) {
    auto row = select.step();
    if (!row) return row.error();
    if (!*row) return entries;
    HistoryEntry entry;
    if (select.next_is_null()) {
      select.skip(kDecisionColumnCount);
    } else {
      entry.decision = read_decision(select);
    }
    if (!select.next_is_null()) entry.job = read_job(select);
    entries.push_back(std::move(entry));
  }
}

bool is_token(const std::string& text) {
  return text.size() == 32 && std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isxdigit(c); });
}

// "17" or "17_3" as numbers; nothing for other text.
struct JobName {
  std::uint32_t number = 0;
  std::optional<std::uint32_t> array_index;
};
std::optional<std::uint32_t> parse_number(const std::string& text) {
  if (text.empty() || text.size() > 10 || !std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); })) {
    return std::nullopt;
  }
  const unsigned long long number = std::stoull(text);
  if (number > 0xfffffffeULL) return std::nullopt;
  return static_cast<std::uint32_t>(number);
}
std::optional<JobName> parse_job_name(const std::string& text) {
  const auto underscore = text.find('_');
  auto number = parse_number(text.substr(0, underscore));
  if (!number) return std::nullopt;
  JobName name{*number, std::nullopt};
  if (underscore != std::string::npos) {
    name.array_index = parse_number(text.substr(underscore + 1));
    if (!name.array_index) return std::nullopt;
  }
  return name;
}

}  // namespace

Result<std::vector<HistoryEntry>> History::list(Viewer viewer, const HistoryFilter& filter) const {
  // Of a user who may not see all, or the one asked for: ?1. Each half gives its newest rows, then the newest of both stay.
  auto sql = [](const char* owner) {
    const std::string of = owner;
    return "SELECT * FROM (SELECT " + columns() + ", d.submitted_s AS at_s, j.id AS row_id FROM (SELECT * FROM decisions WHERE " +
           of + "submitted_s >= ?2 ORDER BY submitted_s DESC LIMIT ?3)" + kDecisionsWithJobs +
           "UNION ALL SELECT * FROM (SELECT " + columns() + ", j.started_s, j.id" + kJobsWithDecisions + "WHERE j.linked = 0 AND " +
           (of.empty() ? "" : "j." + of) + "j.started_s >= ?2 ORDER BY j.started_s DESC LIMIT ?3)) "
           "ORDER BY at_s DESC, row_id DESC LIMIT ?3";
  };
  static const std::string of_one = sql("user_id = ?1 AND ");
  static const std::string of_all = sql("");
  std::optional<std::uint32_t> owner = filter.user_id;
  if (!viewer.all()) {
    if (owner && *owner != viewer.user_id()) return std::vector<HistoryEntry>();
    owner = viewer.user_id();
  }
  Statement select(*database_, owner ? of_one.c_str() : of_all.c_str(), "read the history");
  select.bind(owner).bind(filter.since_s).bind(filter.limit == 0 ? std::int64_t{-1} : std::int64_t{filter.limit});
  return read_entries(select);
}

Result<std::vector<HistoryEntry>> History::show(Viewer viewer, const std::string& job_or_token) const {
  Result<std::vector<HistoryEntry>> found = std::vector<HistoryEntry>();
  if (is_token(job_or_token)) {
    static const std::string sql = "SELECT " + columns() + " FROM decisions" + kDecisionsWithJobs +
                                   "WHERE d.token = ?3 AND (?1 OR d.user_id = ?2)" + kNewestFirst;
    Statement select(*database_, sql.c_str(), "look a token up");
    select.bind(viewer.all()).bind(viewer.user_id()).bind(job_or_token);
    found = read_entries(select);
  } else if (const auto name = parse_job_name(job_or_token)) {
    static const std::string of_job = "SELECT " + columns() + kJobsWithDecisions + "WHERE (j.job_id = ?3 OR j.array_job_id = ?3)" + kVisible + kNewestFirst;
    static const std::string of_task = "SELECT " + columns() + kJobsWithDecisions + "WHERE j.array_job_id = ?3 AND j.array_task_id = ?4" + kVisible + kNewestFirst;
    Statement select(*database_, name->array_index ? of_task.c_str() : of_job.c_str(), "look a job up");
    select.bind(viewer.all()).bind(viewer.user_id()).bind(name->number);
    if (name->array_index) select.bind(*name->array_index);
    found = read_entries(select);
  } else {
    return Error{ErrorKind::invalid_argument,
                 "\"" + job_or_token + "\" is neither a job id (17, or 17_3 for an array task) nor a token of 32 hex digits"};
  }
  if (found && found->empty()) {
    return Error{ErrorKind::not_found, "there is no job " + job_or_token + " in the history that you may see"};
  }
  return found;
}

Result<std::vector<HistoryEntry>> History::running(Viewer viewer) const {
  static const std::string sql = "SELECT " + columns() + kJobsWithDecisions + "WHERE j.ended_s IS NULL" + kVisible + kNewestFirst;
  Statement select(*database_, sql.c_str(), "read the running jobs");
  select.bind(viewer.all()).bind(viewer.user_id());
  return read_entries(select);
}

namespace {

Result<std::vector<Measurement>> measured_by(Database& database, const char* column, std::uint32_t user_id,
                                             const std::string& key, const std::string& gpu, bool include_virtual,
                                             std::uint32_t limit) {
  const std::string sql =
      "SELECT j.job_id, j.ended_s, j.measured_peak_bytes, j.limit_mib, d.need_bytes, j.cause, j.is_virtual "
      "FROM decisions d JOIN jobs j ON j.token = d.token AND j.user_id = d.user_id "
      "WHERE d.user_id = ? AND d." + std::string(column) + " = ? AND d." + column + " != '' AND j.gpu = ? "
      "AND j.measured_peak_bytes IS NOT NULL AND j.ended_s IS NOT NULL AND (? OR NOT j.is_virtual) "
      "ORDER BY j.ended_s DESC, j.id DESC LIMIT ?";
  Statement select(database, sql.c_str(), "read measured peaks");
  select.bind(user_id).bind(key).bind(gpu).bind(include_virtual).bind(limit);
  std::vector<Measurement> measurements;
  for (;;) {
    auto row = select.step();
    if (!row) return row.error();
    if (!*row) return measurements;
    Measurement measured;
    select.read(measured.job_id);
    select.read(measured.ended_s);
    select.read(measured.peak_bytes);
    select.read(measured.limit_mib);
    select.read(measured.need_bytes);
    measured.cause = cause_from_name(select.read<std::string>()).value_or(Cause::unknown);
    select.read(measured.is_virtual);
    measurements.push_back(measured);
  }
}

}  // namespace

Result<std::vector<Measurement>> History::measured_by_fingerprint(std::uint32_t user_id, const std::string& fingerprint,
                                                                  const std::string& gpu, bool include_virtual,
                                                                  std::uint32_t limit) const {
  return measured_by(*database_, "fingerprint", user_id, fingerprint, gpu, include_virtual, limit);
}

Result<std::vector<Measurement>> History::measured_by_family(std::uint32_t user_id, const std::string& family,
                                                             const std::string& gpu, bool include_virtual,
                                                             std::uint32_t limit) const {
  return measured_by(*database_, "family", user_id, family, gpu, include_virtual, limit);
}

}  // namespace gpumem::db
