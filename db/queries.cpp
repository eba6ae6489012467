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

// Every line of history as (decision or NULLs, job or NULLs, user_id, at_s). A token links only rows of one user.
std::string entries_where(const std::string& condition, const std::string& rest) {
  const std::string columns = std::string(kDecisionColumns) + ", " + kJobColumns;
  return "SELECT * FROM (SELECT " + columns +
         ", d.user_id AS owner, d.submitted_s AS at_s, j.id AS row_id, j.job_id AS number, j.array_job_id AS array_number, "
         "j.array_task_id AS array_index, d.token AS decision_token, j.id IS NOT NULL AND j.ended_s IS NULL AS is_running "
         "FROM decisions d LEFT JOIN jobs j ON j.token = d.token AND j.user_id = d.user_id "
         "UNION ALL SELECT " + columns +
         ", j.user_id, j.started_s, j.id, j.job_id, j.array_job_id, j.array_task_id, NULL, j.ended_s IS NULL "
         "FROM jobs j LEFT JOIN decisions d ON d.token = j.token AND d.user_id = j.user_id WHERE d.token IS NULL) "
         "WHERE (?1 OR owner = ?2) AND " + condition + " ORDER BY at_s DESC, row_id DESC " + rest;
}

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
  static const std::string sql = entries_where("at_s >= ?3 AND (?4 IS NULL OR owner = ?4)", "LIMIT ?5");
  Statement select(*database_, sql.c_str(), "read the history");
  select.bind(viewer.all()).bind(viewer.user_id()).bind(filter.since_s).bind(filter.user_id);
  select.bind(filter.limit == 0 ? std::int64_t{-1} : std::int64_t{filter.limit});
  return read_entries(select);
}

Result<std::vector<HistoryEntry>> History::show(Viewer viewer, const std::string& job_or_token) const {
  Result<std::vector<HistoryEntry>> found = std::vector<HistoryEntry>();
  if (is_token(job_or_token)) {
    static const std::string sql = entries_where("decision_token = ?3", "");
    Statement select(*database_, sql.c_str(), "look a token up");
    select.bind(viewer.all()).bind(viewer.user_id()).bind(job_or_token);
    found = read_entries(select);
  } else if (const auto name = parse_job_name(job_or_token)) {
    static const std::string sql = entries_where(
        "CASE WHEN ?4 IS NULL THEN number = ?3 OR array_number = ?3 ELSE array_number = ?3 AND array_index = ?4 END", "");
    Statement select(*database_, sql.c_str(), "look a job up");
    select.bind(viewer.all()).bind(viewer.user_id()).bind(name->number).bind(name->array_index);
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
  static const std::string sql = entries_where("is_running", "");
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
