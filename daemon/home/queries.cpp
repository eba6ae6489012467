// SPDX-License-Identifier: Apache-2.0
// What people ask of gpumemd and its answers as JSON.
#include "daemon/home/queries.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/clock.h"
#include "daemon/home/row_json.h"
#include "daemon/policy/version.h"
#include "daemon/protocol/messages.h"
#include "estimator/gpus/profile.h"

namespace gpumem::home {
namespace {

namespace field = protocol::field;
using protocol::Message;

constexpr std::uint64_t kMostRows = 10000;  // of one answer: some 5 MiB of JSON, below the protocol's largest frame
// Rules that a margin can be for: those that add one (contracts: Rules).
constexpr std::array<const char*, 3> kRulesWithMargin = {"measured", "probe", "family"};

db::Viewer viewer_of(const Peer& peer) {
  return peer.is_operator ? db::Viewer::sees_all() : db::Viewer::user(peer.user_id);
}

Message answer(const Json& json) {
  Message message(protocol::kAnswer);
  message.add(field::kJson, json.dump(-1, ' ', false, Json::error_handler_t::replace));
  return message;
}

Result<std::uint32_t> user_id_of(const std::string& name) {
  std::vector<char> buffer(16384);
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr) return found->pw_uid;
  return Error{ErrorKind::not_found, "there is no user \"" + name + "\" on this host"};
}

Status operators_only(const Peer& peer, const char* what) {
  if (peer.is_operator) return {};
  return Error{ErrorKind::permission, std::string("only operators may ") + what + ", and " + peer.user +
                                          " is none; the administrator names them in gpumem.conf, daemon.operators"};
}

// `must_exist`: a GPU that no profile has is an error; else it stays as it was said (to unset what an older profile left).
Result<db::MarginScope> read_scope(const Message& request, const std::string& profiles_directory, bool must_exist) {
  db::MarginScope scope;
  scope.pool = request.get(field::kPool);
  scope.gpu = request.get(field::kGpu);
  scope.user = request.get(field::kUser);
  scope.account = request.get(field::kAccount);
  scope.rule = request.get(field::kRule);
  if (!scope.gpu.empty()) {
    auto profile = gpus::find_profile(profiles_directory, scope.gpu);
    if (!profile && must_exist) return profile.error();
    if (profile) scope.gpu = profile->name;
  }
  if (!scope.rule.empty() && std::find(kRulesWithMargin.begin(), kRulesWithMargin.end(), scope.rule) == kRulesWithMargin.end()) {
    return Error{ErrorKind::invalid_argument, "no margin is added by a rule \"" + scope.rule + "\"; it is one of measured, probe, family"};
  }
  return scope;
}

}  // namespace

Result<Message> answer_history(const db::History& history, const Peer& peer, const Message& request) {
  db::HistoryFilter filter;
  const std::string user(request.get(field::kUser));
  if (user.empty()) {
    filter.user_id = peer.user_id;
  } else if (user != "*") {
    auto user_id = user_id_of(user);
    if (user_id && *user_id == peer.user_id) {
      filter.user_id = peer.user_id;
    } else {
      // Before the name's existence is told: strangers learn nothing.
      if (auto allowed = operators_only(peer, "see other users' jobs"); !allowed) return allowed.error();
      if (!user_id) return user_id.error();
      filter.user_id = *user_id;
    }
  } else if (auto allowed = operators_only(peer, "see all users' jobs"); !allowed) {
    return allowed.error();
  }
  filter.since_s = request.get_real(field::kSince).value_or(0);
  const std::uint64_t limit = request.get_number(field::kLimit).value_or(50);
  filter.limit = static_cast<std::uint32_t>(limit == 0 ? kMostRows : std::min(limit, kMostRows));

  auto entries = history.list(viewer_of(peer), filter);
  if (!entries) return entries.error();
  Json rows = Json::array();
  for (const auto& entry : *entries) rows.push_back(history_row(entry));
  return answer({{"version", 1}, {"rows", std::move(rows)}});
}

Result<Message> answer_show(const db::History& history, const Peer& peer, const Message& request) {
  auto entries = history.show(viewer_of(peer), std::string(request.get(field::kJob)));
  if (!entries) return entries.error();
  Json shown = Json::array();
  for (const auto& entry : *entries) {
    Json object = {{"decision", nullptr}, {"job", nullptr}};
    if (entry.decision) object["decision"] = whole_decision(*entry.decision);
    if (entry.job) {
      auto tasks = history.tasks_of(entry.job->id);
      if (!tasks) return tasks.error();
      object["job"] = whole_job(*entry.job, *tasks);
    }
    shown.push_back(std::move(object));
  }
  return answer({{"version", 1}, {"entries", std::move(shown)}});
}

Result<Message> answer_status(const db::History& history, const Peer& peer, const DaemonStatus& status) {
  Json object;
  object["version"] = 1;
  object["daemon"] = {{"version", program_version()},
                      {"pid", ::getpid()},
                      {"started_s", status.started_s},
                      {"roles", status.config->daemon.roles},
                      {"config", text_or_null(status.config->file)},
                      {"socket", status.config->daemon.socket}};
  object["pools"] = Json::array();
  for (const auto& pool : status.config->pools) {
    object["pools"].push_back({{"name", pool.name}, {"mode", pool.mode}, {"method", pool.method}, {"partitions", pool.partitions}, {"gpus", pool.gpus}});
  }
  object["probes"] = {{"running", status.probes.running}, {"waiting", status.probes.waiting}, {"at_once", status.probes.at_once}};

  auto running = history.running(viewer_of(peer));
  if (!running) return running.error();
  Json jobs = Json::array();
  for (const auto& entry : *running) {
    Json row = history_row(entry);
    row["device_index"] = entry.job->device_index < 0 ? Json(nullptr) : Json(entry.job->device_index);
    row["used_bytes"] = nullptr;
    if (status.node != nullptr && entry.job->node == status.node->settings().node) {
      if (auto now = status.node->now(*entry.job)) {
        row["used_bytes"] = now->used_bytes;
        row["measured_peak_bytes"] = now->peak_bytes;
      }
    }
    jobs.push_back(std::move(row));
  }
  object["devices"] = Json::array();
  if (status.node != nullptr) {
    // How many jobs share a device is no secret of anybody's; whose they are is.
    auto all = history.running(db::Viewer::sees_all());
    if (!all) return all.error();
    for (const auto& device : status.node->devices().all()) {
      std::uint64_t limits_mib = 0, sharing = 0;
      for (const auto& entry : *all) {
        if (entry.job->node != status.node->settings().node || entry.job->device_index != device.index) continue;
        ++sharing;
        limits_mib += entry.job->limit_mib.value_or(0);
      }
      auto now = status.node->devices().use_of(device.index);
      object["devices"].push_back({{"index", device.index},
                                   {"gpu", text_or_null(device.gpu)},
                                   {"uuid", text_or_null(device.uuid)},
                                   {"virtual", status.node->devices().are_virtual()},
                                   {"usable_bytes", device.usable_bytes == 0 ? Json(nullptr) : Json(device.usable_bytes)},
                                   {"used_bytes", now ? Json(now->used_bytes) : Json(nullptr)},
                                   {"limits_bytes", limits_mib << 20},
                                   {"jobs", sharing}});
    }
  }
  object["jobs"] = std::move(jobs);
  return answer(object);
}

Result<Message> answer_margin_list(const db::History& history, const Peer& peer, const config::Config& config) {
  auto margins = history.margins();
  if (!margins) return margins.error();
  auto changes = history.margin_changes();
  if (!changes) return changes.error();
  auto visible = [&](const db::MarginScope& scope) { return peer.is_operator || scope.user.empty() || scope.user == peer.user; };
  Json object = {{"version", 1},
                 {"default", {{"percent", config.margin.percent}, {"floor_bytes", config.margin.floor.bytes}}},
                 {"margins", Json::array()},
                 {"changes", Json::array()}};
  for (const auto& margin : *margins) {
    if (visible(margin.scope)) object["margins"].push_back(margin_json(margin));
  }
  for (const auto& change : *changes) {
    if (visible(change.scope)) object["changes"].push_back(margin_change_json(change));
  }
  return answer(object);
}

Result<Message> answer_margin_set(db::History& history, const Peer& peer, const config::Config& config,
                                  const std::string& profiles_directory, const Message& request) {
  if (auto allowed = operators_only(peer, "set margins"); !allowed) return allowed.error();
  auto scope = read_scope(request, profiles_directory, true);
  if (!scope) return scope.error();
  if (!scope->pool.empty() && std::none_of(config.pools.begin(), config.pools.end(),
                                           [&](const auto& pool) { return pool.name == scope->pool; })) {
    return Error{ErrorKind::not_found, "gpumem.conf has no pool \"" + scope->pool + "\"; `gpumem status` lists them"};
  }
  if (!scope->user.empty()) {
    if (auto user_id = user_id_of(scope->user); !user_id) return user_id.error();
  }
  const auto percent = request.get_real(field::kPercent);
  if (!percent) return Error{ErrorKind::invalid_argument, "the margin's percentage is missing or not a number"};
  const std::uint64_t floor_bytes = request.get_number(field::kFloorBytes).value_or(0);
  auto margin = history.set_margin(*scope, *percent, floor_bytes, peer.user_id, peer.user, unix_time_s());
  if (!margin) return margin.error();
  return answer({{"version", 1}, {"margin", margin_json(*margin)}});
}

Result<Message> answer_margin_unset(db::History& history, const Peer& peer, const std::string& profiles_directory,
                                    const Message& request) {
  if (auto allowed = operators_only(peer, "unset margins"); !allowed) return allowed.error();
  auto scope = read_scope(request, profiles_directory, false);
  if (!scope) return scope.error();
  if (auto unset = history.unset_margin(*scope, peer.user_id, peer.user, unix_time_s()); !unset) return unset.error();
  return answer({{"version", 1}, {"unset", scope_json(*scope)}});
}

}  // namespace gpumem::home
