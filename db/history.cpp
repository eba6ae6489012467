// SPDX-License-Identifier: Apache-2.0
// History: opening, decisions and probes. Jobs: jobs.cpp; what people ask: queries.cpp; margins: margins.cpp.
#include "db/history.h"

#include <array>
#include <utility>

#include "db/database.h"
#include "db/migrations.h"
#include "db/rows.h"

namespace gpumem::db {
namespace {

constexpr std::array<std::pair<Cause, const char*>, 9> kCauses{{
    {Cause::unknown, "unknown"},
    {Cause::completed, "completed"},
    {Cause::failed, "failed"},
    {Cause::killed, "killed"},
    {Cause::oom_on_limit, "oom_on_limit"},
    {Cause::oom_on_device, "oom_on_device"},
    {Cause::refused, "refused"},
    {Cause::daemon_restart, "daemon_restart"},
    {Cause::node_lost, "node_lost"},
}};

}  // namespace

const char* cause_name(Cause cause) {
  for (const auto& [value, name] : kCauses) {
    if (value == cause) return name;
  }
  return "unknown";
}

std::optional<Cause> cause_from_name(const std::string& name) {
  for (const auto& [value, text] : kCauses) {
    if (name == text) return value;
  }
  return std::nullopt;
}

History::History(std::unique_ptr<Database> database) : database_(std::move(database)) {}
History::History(History&&) noexcept = default;
History& History::operator=(History&&) noexcept = default;
History::~History() = default;

Result<History> History::open(const std::string& path) {
  auto database = Database::open(path);
  if (!database) return database.error();
  if (auto migrated = migrate(**database, migrations()); !migrated) return migrated.error();
  return History(std::move(*database));
}

Status History::in_one_commit(const std::function<Status()>& work) {
  Transaction transaction(*database_);
  if (auto begun = transaction.begin(); !begun) return begun;
  if (auto done = work(); !done) return done;
  return transaction.commit();
}

Status History::record_decision(const Decision& decision) {
  static const std::string sql =
      "INSERT INTO decisions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
  Statement insert(*database_, sql.c_str(), "record a decision");
  bind_decision(insert, decision);
  return insert.run();
}

Status History::amend_decision(const Decision& decision) {
  static const std::string sql =
      "REPLACE INTO decisions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
  Statement replace(*database_, sql.c_str(), "amend a decision");
  bind_decision(replace, decision);
  return replace.run();
}

Result<std::optional<Decision>> History::find_decision(Viewer viewer, const std::string& token) const {
  static const std::string sql =
      std::string("SELECT ") + kDecisionColumns + " FROM decisions d WHERE d.token = ? AND (? OR d.user_id = ?)";
  Statement select(*database_, sql.c_str(), "look a decision up");
  select.bind(token).bind(viewer.all()).bind(viewer.user_id());
  auto row = select.step();
  if (!row) return row.error();
  if (!*row) return std::optional<Decision>();
  return std::optional<Decision>(read_decision(select));
}

Result<std::int64_t> History::record_probe(const Probe& probe) {
  std::int64_t id = 0;
  auto done = in_one_commit([&]() -> Status {
    Statement insert(*database_,
                     "INSERT INTO probes (user_id, fingerprint, family, gpu, finished_s, wall_s, status, estimate_json, "
                     "need_bytes) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                     "record a probe");
    insert.bind(probe.user_id).bind(probe.fingerprint).bind(probe.family).bind(probe.gpu).bind(probe.finished_s);
    insert.bind(probe.wall_s).bind(probe.status).bind(probe.estimate_json).bind(probe.need_bytes);
    if (auto inserted = insert.run(); !inserted) return inserted;
    id = sqlite3_last_insert_rowid(database_->handle());
    Statement file(*database_, "INSERT OR REPLACE INTO probe_files VALUES (?, ?, ?, ?)", "record a probe's files");
    for (const auto& seen : probe.files) {
      file.reset();
      file.bind(id).bind(seen.path).bind(seen.size_bytes).bind(seen.mtime_ns);
      if (auto inserted = file.run(); !inserted) return inserted;
    }
    return {};
  });
  if (!done) return done.error();
  return id;
}

Result<std::optional<Probe>> History::find_probe(std::uint32_t user_id, const std::string& fingerprint,
                                                 const std::string& gpu) const {
  Statement select(*database_,
                   "SELECT id, user_id, fingerprint, family, gpu, finished_s, wall_s, status, estimate_json, need_bytes "
                   "FROM probes WHERE user_id = ? AND fingerprint = ? AND gpu = ? ORDER BY finished_s DESC, id DESC LIMIT 1",
                   "look a probe up");
  select.bind(user_id).bind(fingerprint).bind(gpu);
  auto row = select.step();
  if (!row) return row.error();
  if (!*row) return std::optional<Probe>();
  Probe probe;
  select.read(probe.id);
  select.read(probe.user_id);
  select.read(probe.fingerprint);
  select.read(probe.family);
  select.read(probe.gpu);
  select.read(probe.finished_s);
  select.read(probe.wall_s);
  select.read(probe.status);
  select.read(probe.estimate_json);
  select.read(probe.need_bytes);
  Statement files(*database_, "SELECT path, size_bytes, mtime_ns FROM probe_files WHERE probe_id = ? ORDER BY path",
                  "read a probe's files");
  files.bind(probe.id);
  for (;;) {
    auto next = files.step();
    if (!next) return next.error();
    if (!*next) break;
    ProbedFile file;
    files.read(file.path);
    files.read(file.size_bytes);
    files.read(file.mtime_ns);
    probe.files.push_back(std::move(file));
  }
  return std::optional<Probe>(std::move(probe));
}

Result<std::uint64_t> History::forget_probes(double before_s) {
  Statement remove(*database_, "DELETE FROM probes WHERE finished_s < ?", "forget old probes");
  remove.bind(before_s);
  if (auto done = remove.run(); !done) return done.error();
  return static_cast<std::uint64_t>(sqlite3_changes(database_->handle()));
}

}  // namespace gpumem::db
