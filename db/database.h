// SPDX-License-Identifier: Apache-2.0
// SQLite as values: a database, a statement, a transaction. Used by db/ alone (gpumemd).
//
// A Database owns one connection and belongs to one thread. A Statement or Transaction must not outlive it. Nothing
// throws. Another process that holds the file is waited for kBusy_ms, then the error is `unavailable`.
// Settings: WAL, synchronous=FULL (a commit is on the disk when it returns), foreign keys on.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/result.h"

namespace gpumem::db {

// gpumemd is the only writer; what it may have to wait for is somebody's `sqlite3` or a backup. The event loop stands
// still meanwhile, so this stays below the plugin's patience.
inline constexpr int kBusy_ms = 2000;

class Database {
 public:
  // Opens or makes the file with mode 0600. Refuses network file systems: WAL needs shared memory and locks that hold.
  static Result<std::unique_ptr<Database>> open(const std::string& path);
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;
  ~Database();

  // Runs SQL without parameters and results, several statements if need be.
  Status execute(const std::string& sql);

  sqlite3* handle() const { return handle_; }
  const std::string& path() const { return path_; }
  // What the last call on this connection failed with: "database PATH: cannot WHAT: … (SQLite 1034)".
  Error error(const std::string& what) const;

 private:
  Database(sqlite3* handle, std::string path) : handle_(handle), path_(std::move(path)) {}
  sqlite3* handle_;
  std::string path_;
};

// The magic number of a network file system by name ("NFS"), nullptr for any other (statfs(2), linux/magic.h).
const char* network_file_system(long statfs_type);

// One prepared statement. Parameters are bound in order; after step() says row, columns are read in order.
class Statement {
 public:
  // `what` completes "cannot …" in errors: "record a decision".
  Statement(const Database& database, const char* sql, const char* what);
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;
  ~Statement() { sqlite3_finalize(statement_); }

  template <class T>
  Statement& bind(const T& value) {
    if constexpr (std::is_floating_point_v<T>) {
      note(sqlite3_bind_double(statement_, ++bound_, value));
    } else if constexpr (std::is_integral_v<T>) {
      note(sqlite3_bind_int64(statement_, ++bound_, static_cast<sqlite3_int64>(value)));
    } else {
      bind_text(value);
    }
    return *this;
  }
  template <class T>
  Statement& bind(const std::optional<T>& value) {
    if (value) return bind(*value);
    note(sqlite3_bind_null(statement_, ++bound_));
    return *this;
  }

  // True: a row is there to be read. False: no more rows.
  Result<bool> step();
  // For statements that give no rows.
  Status run();
  void reset();

  // The next column of the row, in order.
  template <class T>
  void read(T& value) {
    const int column = column_++;
    if constexpr (std::is_same_v<T, std::string>) {
      value = column_text(column);
    } else if constexpr (std::is_floating_point_v<T>) {
      value = sqlite3_column_double(statement_, column);
    } else {
      value = static_cast<T>(sqlite3_column_int64(statement_, column));
    }
  }
  template <class T>
  void read(std::optional<T>& value) {
    if (sqlite3_column_type(statement_, column_) == SQLITE_NULL) {
      ++column_;
      value.reset();
    } else {
      value.emplace();
      read(*value);
    }
  }
  template <class T>
  T read() {
    T value{};
    read(value);
    return value;
  }
  void skip(int columns) { column_ += columns; }
  bool next_is_null() const { return sqlite3_column_type(statement_, column_) == SQLITE_NULL; }

 private:
  void bind_text(std::string_view text);
  void note(int code) { if (code != SQLITE_OK && code_ == SQLITE_OK) code_ = code; }
  std::string column_text(int column) const;

  const Database& database_;
  const char* what_;
  sqlite3_stmt* statement_ = nullptr;
  int bound_ = 0, column_ = 0;
  int code_ = SQLITE_OK;  // the first failure of prepare or bind
};

// Everything between begin() and commit() happens, or nothing. Inside another transaction it is a savepoint of it.
// Destroyed without commit, it undoes.
class Transaction {
 public:
  explicit Transaction(Database& database) : database_(database) {}
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  ~Transaction();

  Status begin();
  Status commit();

 private:
  Database& database_;
  bool open_ = false, nested_ = false;
};

}  // namespace gpumem::db
