// SPDX-License-Identifier: Apache-2.0
// History: margins, which one is in force, and who changed them when.
#include <cmath>
#include <string>

#include "db/database.h"
#include "db/history.h"

namespace gpumem::db {
namespace {

constexpr char kMarginColumns[] = "id, pool, gpu, user, account, rule, percent, floor_bytes, set_by_user_id, set_by, set_s";
// Beyond this a margin is a typing error: ten times the need.
constexpr double kLargestPercent = 1000;

void bind_scope(Statement& s, const MarginScope& scope) {
  s.bind(scope.pool).bind(scope.gpu).bind(scope.user).bind(scope.account).bind(scope.rule);
}

void read_scope(Statement& s, MarginScope& scope) {
  s.read(scope.pool);
  s.read(scope.gpu);
  s.read(scope.user);
  s.read(scope.account);
  s.read(scope.rule);
}

Margin read_margin(Statement& s) {
  Margin margin;
  s.read(margin.id);
  read_scope(s, margin.scope);
  s.read(margin.percent);
  s.read(margin.floor_bytes);
  s.read(margin.set_by_user_id);
  s.read(margin.set_by);
  s.read(margin.set_s);
  return margin;
}

Result<std::optional<Margin>> exact(Database& database, const MarginScope& scope) {
  static const std::string sql = std::string("SELECT ") + kMarginColumns +
                                 " FROM margins WHERE pool = ? AND gpu = ? AND user = ? AND account = ? AND rule = ?";
  Statement select(database, sql.c_str(), "look a margin up");
  bind_scope(select, scope);
  auto row = select.step();
  if (!row) return row.error();
  if (!*row) return std::optional<Margin>();
  return std::optional<Margin>(read_margin(select));
}

Status note_change(Database& database, const MarginChange& change) {
  Statement insert(database,
                   "INSERT INTO margin_changes (at_s, by_user_id, by, pool, gpu, user, account, rule, percent_before, "
                   "percent_after, floor_bytes_before, floor_bytes_after) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                   "note who changed a margin");
  insert.bind(change.at_s).bind(change.by_user_id).bind(change.by);
  bind_scope(insert, change.scope);
  insert.bind(change.percent_before).bind(change.percent_after).bind(change.floor_bytes_before).bind(change.floor_bytes_after);
  return insert.run();
}

}  // namespace

Result<Margin> History::set_margin(const MarginScope& scope, double percent, std::uint64_t floor_bytes,
                                   std::uint32_t by_user_id, const std::string& by, double at_s) {
  if (!std::isfinite(percent) || percent < 0 || percent > kLargestPercent) {
    return Error{ErrorKind::invalid_argument, "a margin must be between 0% and 1000% of the need"};
  }
  MarginChange change{at_s, by_user_id, by, scope, std::nullopt, percent, std::nullopt, floor_bytes};
  std::optional<Margin> now;
  auto done = in_one_commit([&]() -> Status {
    auto before = exact(*database_, scope);
    if (!before) return before.error();
    if (*before) {
      change.percent_before = (*before)->percent;
      change.floor_bytes_before = (*before)->floor_bytes;
    }
    Statement upsert(*database_,
                     "INSERT INTO margins (pool, gpu, user, account, rule, percent, floor_bytes, set_by_user_id, set_by, set_s) "
                     "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (pool, gpu, user, account, rule) DO UPDATE SET "
                     "percent = excluded.percent, floor_bytes = excluded.floor_bytes, "
                     "set_by_user_id = excluded.set_by_user_id, set_by = excluded.set_by, set_s = excluded.set_s",
                     "set a margin");
    bind_scope(upsert, scope);
    upsert.bind(percent).bind(floor_bytes).bind(by_user_id).bind(by).bind(at_s);
    if (auto set = upsert.run(); !set) return set;
    if (auto noted = note_change(*database_, change); !noted) return noted;
    auto after = exact(*database_, scope);
    if (!after) return after.error();
    now = *after;
    return {};
  });
  if (!done) return done.error();
  return *now;
}

Status History::unset_margin(const MarginScope& scope, std::uint32_t by_user_id, const std::string& by, double at_s) {
  return in_one_commit([&]() -> Status {
    auto before = exact(*database_, scope);
    if (!before) return before.error();
    if (!*before) {
      return Error{ErrorKind::not_found, "no margin is set for exactly this; `gpumem margin list` shows those that are"};
    }
    Statement remove(*database_, "DELETE FROM margins WHERE id = ?", "unset a margin");
    remove.bind((*before)->id);
    if (auto removed = remove.run(); !removed) return removed;
    return note_change(*database_, {at_s, by_user_id, by, scope, (*before)->percent, std::nullopt, (*before)->floor_bytes, std::nullopt});
  });
}

Result<std::vector<Margin>> History::margins() const {
  static const std::string sql = std::string("SELECT ") + kMarginColumns + " FROM margins ORDER BY pool, gpu, account, user, rule";
  Statement select(*database_, sql.c_str(), "read the margins");
  std::vector<Margin> all;
  for (;;) {
    auto row = select.step();
    if (!row) return row.error();
    if (!*row) return all;
    all.push_back(read_margin(select));
  }
}

Result<std::vector<MarginChange>> History::margin_changes(std::uint32_t limit) const {
  Statement select(*database_,
                   "SELECT at_s, by_user_id, by, pool, gpu, user, account, rule, percent_before, percent_after, "
                   "floor_bytes_before, floor_bytes_after FROM margin_changes ORDER BY id DESC LIMIT ?",
                   "read the margins' changes");
  select.bind(limit);
  std::vector<MarginChange> changes;
  for (;;) {
    auto row = select.step();
    if (!row) return row.error();
    if (!*row) return changes;
    MarginChange change;
    select.read(change.at_s);
    select.read(change.by_user_id);
    select.read(change.by);
    read_scope(select, change.scope);
    select.read(change.percent_before);
    select.read(change.percent_after);
    select.read(change.floor_bytes_before);
    select.read(change.floor_bytes_after);
    changes.push_back(std::move(change));
  }
}

Result<std::optional<Margin>> History::margin_for(const MarginScope& need) const {
  // 100 for each named field; what is below decides among equals (user 16 … pool 1).
  static const std::string sql =
      std::string("SELECT ") + kMarginColumns +
      " FROM margins WHERE (pool = '' OR pool = ?) AND (gpu = '' OR gpu = ?) AND (user = '' OR user = ?) "
      "AND (account = '' OR account = ?) AND (rule = '' OR rule = ?) "
      "ORDER BY (user != '') * 116 + (account != '') * 108 + (rule != '') * 104 + (gpu != '') * 102 + (pool != '') * 101 DESC LIMIT 1";
  Statement select(*database_, sql.c_str(), "look for the margin in force");
  bind_scope(select, need);
  auto row = select.step();
  if (!row) return row.error();
  if (!*row) return std::optional<Margin>();
  return std::optional<Margin>(read_margin(select));
}

}  // namespace gpumem::db
