// SPDX-License-Identifier: Apache-2.0
// The database's schema as a series of steps.
#include "db/migrations.h"

#include "base/clock.h"
#include "config.h"

namespace gpumem::db {
namespace {

// Version 1. Empty text is "none"; NULL is "not known". jobs.token is no foreign key: a token comes from the job's
// environment and can be forged, so it links only where decisions.user_id agrees.
constexpr char kCreate[] = R"sql(
CREATE TABLE schema_info (
  name TEXT PRIMARY KEY,
  value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE decisions (
  token TEXT PRIMARY KEY,
  submitted_s REAL NOT NULL,
  user_id INTEGER NOT NULL,
  user TEXT NOT NULL,
  account TEXT NOT NULL,
  partition TEXT NOT NULL,
  pool TEXT NOT NULL,
  mode TEXT NOT NULL,
  command TEXT NOT NULL,
  script_name TEXT NOT NULL,
  command_line TEXT NOT NULL,
  working_directory TEXT NOT NULL,
  requested TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  family TEXT NOT NULL,
  gpu TEXT NOT NULL,
  rule TEXT NOT NULL,
  estimate_json TEXT NOT NULL,
  need_bytes INTEGER,
  margin_bytes INTEGER NOT NULL,
  margin_percent REAL NOT NULL,
  margin_id INTEGER NOT NULL,
  limit_mib INTEGER,
  action TEXT NOT NULL CHECK (action IN ('keep', 'rewrite')),
  gres TEXT NOT NULL,
  line TEXT NOT NULL,
  reason TEXT NOT NULL
);
CREATE INDEX decisions_by_time ON decisions (submitted_s);
CREATE INDEX decisions_by_user ON decisions (user_id, submitted_s);
CREATE INDEX decisions_by_fingerprint ON decisions (user_id, fingerprint);
CREATE INDEX decisions_by_family ON decisions (user_id, family);

CREATE TABLE probes (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  user_id INTEGER NOT NULL,
  fingerprint TEXT NOT NULL,
  family TEXT NOT NULL,
  gpu TEXT NOT NULL,
  finished_s REAL NOT NULL,
  wall_s REAL NOT NULL,
  status TEXT NOT NULL,
  estimate_json TEXT NOT NULL,
  need_bytes INTEGER
);
CREATE INDEX probes_by_fingerprint ON probes (user_id, fingerprint, gpu, finished_s);

CREATE TABLE probe_files (
  probe_id INTEGER NOT NULL REFERENCES probes (id) ON DELETE CASCADE,
  path TEXT NOT NULL,
  size_bytes INTEGER NOT NULL,
  mtime_ns INTEGER NOT NULL,
  PRIMARY KEY (probe_id, path)
) WITHOUT ROWID;

CREATE TABLE jobs (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  cluster TEXT NOT NULL,
  job_id INTEGER NOT NULL,
  array_job_id INTEGER,
  array_task_id INTEGER,
  node TEXT NOT NULL,
  run INTEGER NOT NULL,
  token TEXT NOT NULL,
  user_id INTEGER NOT NULL,
  user TEXT NOT NULL,
  started_s REAL NOT NULL,
  ended_s REAL,
  limit_mib INTEGER,
  enforced INTEGER NOT NULL,
  is_virtual INTEGER NOT NULL,
  gpu TEXT NOT NULL,
  device_uuid TEXT NOT NULL,
  device_index INTEGER NOT NULL,
  meter_book TEXT NOT NULL,
  measured_peak_bytes INTEGER,
  context_bytes INTEGER NOT NULL,
  out_of_memory_count INTEGER NOT NULL,
  out_of_memory_bytes INTEGER NOT NULL,
  exit_status INTEGER,
  signal INTEGER NOT NULL,
  cause TEXT NOT NULL,
  note TEXT NOT NULL,
  UNIQUE (cluster, job_id, node, run)
);
CREATE INDEX jobs_by_token ON jobs (token);
CREATE INDEX jobs_by_job ON jobs (job_id);
CREATE INDEX jobs_by_array ON jobs (array_job_id);
CREATE INDEX jobs_by_user ON jobs (user_id, started_s);
CREATE INDEX jobs_unfinished ON jobs (node) WHERE ended_s IS NULL;

CREATE TABLE tasks (
  job_row INTEGER NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
  step_id INTEGER NOT NULL,
  task_id INTEGER NOT NULL,
  pid INTEGER NOT NULL,
  pid_start_ticks INTEGER NOT NULL,
  boot_id TEXT NOT NULL,
  started_s REAL NOT NULL,
  ended_s REAL,
  exit_status INTEGER,
  signal INTEGER NOT NULL,
  cause TEXT NOT NULL,
  PRIMARY KEY (job_row, step_id, task_id)
) WITHOUT ROWID;

CREATE TABLE margins (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  pool TEXT NOT NULL,
  gpu TEXT NOT NULL,
  user TEXT NOT NULL,
  account TEXT NOT NULL,
  rule TEXT NOT NULL,
  percent REAL NOT NULL,
  floor_bytes INTEGER NOT NULL,
  set_by_user_id INTEGER NOT NULL,
  set_by TEXT NOT NULL,
  set_s REAL NOT NULL,
  UNIQUE (pool, gpu, user, account, rule)
);

CREATE TABLE margin_changes (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  at_s REAL NOT NULL,
  by_user_id INTEGER NOT NULL,
  by TEXT NOT NULL,
  pool TEXT NOT NULL,
  gpu TEXT NOT NULL,
  user TEXT NOT NULL,
  account TEXT NOT NULL,
  rule TEXT NOT NULL,
  percent_before REAL,
  percent_after REAL,
  floor_bytes_before INTEGER,
  floor_bytes_after INTEGER
);
)sql";

// Version 2. jobs.linked: a decision of the same user has the job's token. Jobs without one are lines of history of their
// own, found without looking at all the others.
constexpr char kLinked[] = R"sql(
ALTER TABLE jobs ADD COLUMN linked INTEGER NOT NULL DEFAULT 0;
UPDATE jobs SET linked = EXISTS (SELECT 1 FROM decisions d WHERE d.token = jobs.token AND d.user_id = jobs.user_id);
CREATE INDEX jobs_unlinked ON jobs (started_s) WHERE linked = 0;
CREATE INDEX jobs_unlinked_by_user ON jobs (user_id, started_s) WHERE linked = 0;
)sql";

constexpr const char* kSteps[] = {kCreate, kLinked};

Result<int> version_of(Database& database) {
  Statement version(database, "PRAGMA user_version", "read its schema version");
  auto row = version.step();
  if (!row) return row.error();
  return version.read<int>();
}

}  // namespace

std::span<const char* const> migrations() { return kSteps; }

Status migrate(Database& database, std::span<const char* const> steps) {
  const int newest = static_cast<int>(steps.size());
  auto version = version_of(database);
  if (!version) return version.error();
  if (*version > newest) {
    return Error{ErrorKind::unsupported, "database " + database.path() + ": its schema is version " +
                                             std::to_string(*version) + " and this gpumem " PACKAGE_VERSION " knows up to " +
                                             std::to_string(newest) + "; run the newer gpumem, or restore the copy from before the upgrade"};
  }
  if (*version == newest) return {};
  Transaction transaction(database);
  if (auto begun = transaction.begin(); !begun) return begun;
  // Another gpumemd may have done it while this one waited for the lock.
  version = version_of(database);
  if (!version) return version.error();
  for (int step = *version; step < newest; ++step) {
    if (auto done = database.execute(steps[static_cast<std::size_t>(step)]); !done) {
      return done.error().with_context("migration to version " + std::to_string(step + 1));
    }
  }
  if (auto done = database.execute("PRAGMA user_version = " + std::to_string(newest)); !done) return done;
  {
    Statement info(database, "INSERT OR REPLACE INTO schema_info (name, value) VALUES (?, ?)", "note the migration");
    info.bind("migrated_by_" + std::to_string(newest)).bind(std::string("gpumem " PACKAGE_VERSION " at ") + std::to_string(unix_time_s()));
    if (auto done = info.run(); !done) return done;
  }
  return transaction.commit();
}

}  // namespace gpumem::db
