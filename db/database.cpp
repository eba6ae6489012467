// SPDX-License-Identifier: Apache-2.0
// SQLite as values.
#include "db/database.h"

#include <fcntl.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/file.h"

namespace gpumem::db {
namespace {

ErrorKind kind_of(int code) {
  switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_FULL: return ErrorKind::unavailable;
    case SQLITE_PERM:
    case SQLITE_READONLY:
    case SQLITE_AUTH: return ErrorKind::permission;
    case SQLITE_IOERR:
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_CANTOPEN: return ErrorKind::io;
    case SQLITE_CONSTRAINT: return ErrorKind::invalid_argument;
    default: return ErrorKind::internal;
  }
}

Error error_of(const std::string& path, const std::string& what, int code, const char* text) {
  std::string advice;
  switch (code & 0xff) {
    case SQLITE_BUSY: advice = "; another program holds the file: close it and try again"; break;
    case SQLITE_FULL: advice = "; the disk is full: make room"; break;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB: advice = "; restore it from a backup, or move it away to begin with an empty history"; break;
    default: break;
  }
  return {kind_of(code),
          "database " + path + ": cannot " + what + ": " + text + " (SQLite " + std::to_string(code) + ")" + advice};
}

}  // namespace

const char* network_file_system(long statfs_type) {
  switch (static_cast<unsigned long>(statfs_type) & 0xffffffffUL) {
    case 0x6969: return "NFS";
    case 0x517b:
    case 0xff534d42:
    case 0xfe534d42: return "SMB";
    case 0x5346414f:
    case 0x6b414653: return "AFS";
    case 0x0bd00bd0: return "Lustre";
    case 0x47504653: return "GPFS";
    case 0x19830326: return "BeeGFS";
    case 0x00c36400: return "CephFS";
    case 0xaad7aaea: return "PanFS";
    case 0x20030528: return "OrangeFS";
    case 0x73757245: return "Coda";
    case 0x564c: return "NCP";
    default: return nullptr;
  }
}

Result<std::unique_ptr<Database>> Database::open(const std::string& path) {
  std::string directory = std::filesystem::path(path).parent_path().string();
  if (directory.empty()) directory = ".";
  struct statfs file_system {};
  if (::statfs(directory.c_str(), &file_system) != 0) return errno_error("database " + path + ": cannot look at " + directory);
  if (const char* name = network_file_system(static_cast<long>(file_system.f_type))) {
    return Error{ErrorKind::unsupported, "database " + path + ": " + directory + " is on " + name +
                                             ", and a network file system can lose committed rows; put it on a local disk"};
  }
  // SQLite would make the file with the umask's mode, and gives its WAL the same mode as the file.
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return errno_error("database " + path + ": cannot open it");
  ::close(fd);

  sqlite3* handle = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &handle, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr);
  if (code != SQLITE_OK) {
    Error error = error_of(path, "open it", code, sqlite3_errstr(code));
    sqlite3_close(handle);
    return error;
  }
  sqlite3_extended_result_codes(handle, 1);
  sqlite3_busy_timeout(handle, kBusy_ms);
  std::unique_ptr<Database> database(new Database(handle, path));
  {
    Statement wal(*database, "PRAGMA journal_mode = WAL", "switch to write-ahead logging");
    auto row = wal.step();
    if (!row) return row.error();
    if (const auto mode = wal.read<std::string>(); mode != "wal") {
      return Error{ErrorKind::unsupported, "database " + path + ": write-ahead logging is not possible here (journal mode is " +
                                               mode + "); put it on a local disk"};
    }
  }
  if (auto done = database->execute("PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;"); !done) return done.error();
  return database;
}

Database::~Database() { sqlite3_close(handle_); }

Status Database::execute(const std::string& sql) {
  if (sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) {
    return error("run \"" + sql.substr(0, 60) + "\"");
  }
  return {};
}

Error Database::error(const std::string& what) const {
  return error_of(path_, what, sqlite3_extended_errcode(handle_), sqlite3_errmsg(handle_));
}

Statement::Statement(const Database& database, const char* sql, const char* what) : database_(database), what_(what) {
  code_ = sqlite3_prepare_v2(database.handle(), sql, -1, &statement_, nullptr);
}

void Statement::bind_text(std::string_view text) {
  note(sqlite3_bind_text64(statement_, ++bound_, text.data() ? text.data() : "", text.size(), SQLITE_TRANSIENT, SQLITE_UTF8));
}

std::string Statement::column_text(int column) const {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  return text ? std::string(text, static_cast<std::size_t>(sqlite3_column_bytes(statement_, column))) : std::string();
}

Result<bool> Statement::step() {
  if (code_ != SQLITE_OK) return database_.error(what_);
  column_ = 0;
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return database_.error(what_);
}

Status Statement::run() {
  auto row = step();
  if (!row) return row.error();
  return {};
}

void Statement::reset() {
  sqlite3_reset(statement_);
  bound_ = column_ = 0;
}

Status Transaction::begin() {
  nested_ = sqlite3_get_autocommit(database_.handle()) == 0;
  // IMMEDIATE: to wait for a writer happens here, never in the middle, where it would fail at once.
  auto begun = database_.execute(nested_ ? "SAVEPOINT inner" : "BEGIN IMMEDIATE");
  open_ = begun.ok();
  return begun;
}

Status Transaction::commit() {
  auto committed = database_.execute(nested_ ? "RELEASE inner" : "COMMIT");
  if (committed) open_ = false;
  return committed;
}

Transaction::~Transaction() {
  if (!open_) return;
  // Some failures (disk full) have rolled back already; to undo again is no error then.
  if (sqlite3_get_autocommit(database_.handle()) != 0) return;
  (void)database_.execute(nested_ ? "ROLLBACK TO inner; RELEASE inner" : "ROLLBACK");
}

}  // namespace gpumem::db
