// SPDX-License-Identifier: Apache-2.0
// Start, dispatch, reload and end of gpumemd.
#include "daemon/home/daemon.h"

#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <sstream>

#include "base/clock.h"
#include "base/file.h"
#include "daemon/home/queries.h"
#include "daemon/log.h"
#include "daemon/node/handlers.h"
#include "daemon/policy/version.h"
#include "daemon/protocol/messages.h"

namespace gpumem::home {
namespace {

constexpr double kMaintenance_s = 3600;
// Children get two seconds between SIGTERM and SIGKILL; systemd waits far longer than this.
constexpr double kEnd_s = 4;
constexpr double kEndLook_s = 0.02;

bool is_in_group(const std::string& user, gid_t group_id, const std::string& group) {
  const ::group* entry = ::getgrnam(group.c_str());
  if (entry == nullptr) return false;
  if (entry->gr_gid == group_id) return true;
  for (char** member = entry->gr_mem; *member != nullptr; ++member) {
    if (user == *member) return true;
  }
  return false;
}

ServerOptions server_options(const config::DaemonSection& section) {
  ServerOptions options;
  options.socket = section.socket;
  options.socket_mode = static_cast<unsigned>(std::strtoul(section.socket_mode.c_str(), nullptr, 8));
  options.socket_group = section.socket_group;
  options.connections_at_most = static_cast<std::size_t>(section.connections_at_most);
  options.idle_timeout_s = section.idle_timeout_s;
  return options;
}

bool same_devices(const std::vector<config::VirtualGpus>& a, const std::vector<config::VirtualGpus>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const config::VirtualGpus& x, const config::VirtualGpus& y) {
    return x.gpu == y.gpu && x.count == y.count;
  });
}

std::string slurm_conf_path(const config::SlurmSection& section) {
  if (!section.conf.empty()) return section.conf;
  const char* inherited = std::getenv("SLURM_CONF");
  if (inherited != nullptr && *inherited != '\0') return inherited;
  for (const char* path : {"/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf"}) {
    if (::access(path, R_OK) == 0) return path;
  }
  return {};
}

}  // namespace

std::string cluster_name(const std::string& slurm_conf) {
  const auto text = read_file(slurm_conf, 1 << 20);
  if (!text) return {};
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t start = line.find_first_not_of(" \t");
    if (start == std::string::npos) continue;
    static constexpr char kKey[] = "clustername=";
    std::string key = line.substr(start, sizeof kKey - 1);
    std::transform(key.begin(), key.end(), key.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (key != kKey) continue;
    const std::string value = line.substr(start + sizeof kKey - 1);
    return value.substr(0, value.find_first_of(" \t\r#"));
  }
  return {};
}

Daemon::Daemon(const config::Config& config, const std::string& config_path, EventBase base, db::History history)
    : config_(config), config_path_(config_path), started_s_(unix_time_s()), base_(std::move(base)), history_(std::move(history)) {}

Daemon::~Daemon() = default;

Result<std::unique_ptr<Daemon>> Daemon::start(const config::Config& config, const std::string& config_path) {
  // A client that goes away while it is written to is an event, not a signal.
  ::signal(SIGPIPE, SIG_IGN);
  EventBase base = make_event_base();
  if (!base) return Error{ErrorKind::io, "libevent cannot start its loop"};
  if (auto made = make_directories(config.daemon.state_directory, 0755); !made) return made.error();
  auto history = db::History::open(config.daemon.state_directory + "/gpumem.db");
  if (!history) return history.error();
  auto pools = resolve_pools(config, config.daemon.profiles_directory);
  if (!pools) return pools.error();

  std::unique_ptr<Daemon> daemon(new Daemon(config, config_path, std::move(base), std::move(*history)));
  Daemon* self = daemon.get();
  event_base* loop = self->base_.get();
  self->children_ = std::make_unique<Children>(loop);
  self->slurm_ = std::make_unique<SlurmWatch>(loop, *self->children_, config.slurm);
  self->decider_ = std::make_unique<Decider>(loop, *self->children_, self->history_, *self->slurm_, config, std::move(*pools));
  if (config.daemon.has_role("node")) {
    if (auto started = self->start_node(); !started) return started.error();
  }
  if (auto started = self->start_server(); !started) return started.error();
  if (config.daemon.has_role("submit")) self->slurm_->start(config.slurm);

  for (const int number : {SIGTERM, SIGINT}) {
    self->signals_.emplace_back(loop, number, [self, number] {
      spdlog::info("signal {}: ending", number);
      self->end();
    });
  }
  self->signals_.emplace_back(loop, SIGHUP, [self] {
    const Status reloaded = self->reload();
    if (!reloaded) spdlog::error("the configuration stays as it was: {}", reloaded.error().message);
  });
  for (SignalEvent& signal : self->signals_) signal.start();
  self->maintenance_timer_ = Timer(loop, [self] { self->maintain(); });
  self->maintenance_timer_.start(0);
  return daemon;
}

Status Daemon::start_node() {
  node::Settings settings = node::installed_settings(config_.daemon.state_directory);
  settings.profiles_directory = config_.daemon.profiles_directory;
  if (!config_.node.name.empty()) settings.node = config_.node.name;
  settings.cluster = config_.node.cluster.empty() ? cluster_name(slurm_conf_path(config_.slurm)) : config_.node.cluster;
  settings.enforce = config_.node.enforce;
  settings.virtual_gpus = config_.node.virtual_gpus;
  auto started = node::Node::start(settings, history_, [](const std::string& sentence) { spdlog::info("{}", sentence); });
  if (!started) return started.error().with_context("node role");
  node_ = std::move(*started);
  node_timer_ = Timer(base_.get(), [this] {
    node_->tick();
    node_timer_.start(node::kTick_s);
  });
  node_timer_.start(node::kTick_s);
  return {};
}

Status Daemon::start_server() {
  const std::string& socket = config_.daemon.socket;
  if (const std::size_t slash = socket.rfind('/'); slash != std::string::npos && slash > 0) {
    if (auto made = make_directories(socket.substr(0, slash), 0755); !made) return made.error();
  }
  auto server = Server::listen(
      base_.get(), server_options(config_.daemon), [this](Peer& peer) { introduce(peer); },
      [this](const ExchangePtr& exchange) { dispatch(exchange); });
  if (!server) return server.error();
  server_ = std::move(*server);
  return {};
}

Status Daemon::run() {
  spdlog::info("gpumemd {} listens at {}", program_version(), config_.daemon.socket);
  if (event_base_dispatch(base_.get()) < 0) return Error{ErrorKind::internal, "libevent's loop failed"};
  spdlog::info("gpumemd has ended in order");
  return {};
}

void Daemon::introduce(Peer& peer) const {
  const auto identity = find_identity(peer.user_id);
  peer.user = identity ? identity->user : std::to_string(peer.user_id);
  const policy::SlurmFacts& facts = slurm_->facts();
  peer.is_privileged = peer.user_id == 0 || peer.user_id == ::geteuid() || (facts.known && peer.user_id == facts.slurm_user_id);
  peer.is_operator = peer.is_privileged;
  for (const std::string& name : config_.daemon.operators) {
    if (peer.is_operator) break;
    peer.is_operator = name.rfind("group:", 0) == 0 ? is_in_group(peer.user, peer.group_id, name.substr(6)) : name == peer.user;
  }
}

void Daemon::dispatch(const ExchangePtr& exchange) {
  const protocol::Message& request = exchange->request;
  const Peer& peer = exchange->peer;
  const std::string type(request.type());
  const auto answer = [&](const Result<protocol::Message>& reply) {
    if (reply) {
      exchange->reply(*reply);
    } else {
      exchange->reply_error(reply.error());
    }
  };
  const auto lacks_role = [&](const char* role) {
    answer(Error{ErrorKind::unsupported, std::string("this gpumemd has not the role ") + role + " (gpumem.conf, daemon.roles)"});
  };
  if (type == protocol::kPing) {
    protocol::Message pong(protocol::kPong);
    pong.add(protocol::field::kVersion, program_version()).add_number(protocol::field::kPid, static_cast<std::uint64_t>(::getpid()));
    exchange->reply(pong);
  } else if (type == protocol::kDecide) {
    if (!config_.daemon.has_role("submit") && !config_.daemon.has_role("home")) return lacks_role("submit");
    decider_->decide(exchange);
  } else if (type == protocol::kJobStart) {
    if (!node_) return lacks_role("node");
    answer(node::answer_job_start(*node_, peer, request));
  } else if (type == protocol::kTaskEnd) {
    if (!node_) return lacks_role("node");
    answer(node::answer_task_end(*node_, peer, request));
  } else if (type == protocol::kHistory) {
    answer(answer_history(history_, peer, request));
  } else if (type == protocol::kShow) {
    answer(answer_show(history_, peer, request));
  } else if (type == protocol::kStatus) {
    DaemonStatus status;
    status.started_s = started_s_;
    status.config = &config_;
    status.probes = {decider_->queue().running(), decider_->queue().waiting(), decider_->queue().at_once()};
    status.node = node_.get();
    answer(answer_status(history_, peer, status));
  } else if (type == protocol::kMarginList) {
    answer(answer_margin_list(history_, peer, config_));
  } else if (type == protocol::kMarginSet) {
    answer(answer_margin_set(history_, peer, config_, config_.daemon.profiles_directory, request));
  } else if (type == protocol::kMarginUnset) {
    answer(answer_margin_unset(history_, peer, config_.daemon.profiles_directory, request));
  } else if (type == protocol::kReload) {
    if (!peer.is_operator) return answer(Error{ErrorKind::permission, "only operators may reload the configuration"});
    const Status reloaded = reload();
    if (!reloaded) return answer(reloaded.error());
    protocol::Message done(protocol::kAnswer);
    done.add(protocol::field::kJson, "{\"reloaded\":true}");
    exchange->reply(done);
  } else {
    answer(Error{ErrorKind::unsupported, "gpumemd " + program_version() + " does not know the request '" + type.substr(0, 64) + "'"});
  }
}

Status Daemon::reload() {
  if (config_path_.empty()) return Error{ErrorKind::unsupported, "gpumemd was started without a configuration file"};
  auto fresh = config::load(config_path_);
  if (!fresh) return fresh.error();
  auto pools = resolve_pools(*fresh, fresh->daemon.profiles_directory);
  if (!pools) return pools.error();
  const config::DaemonSection& before = config_.daemon;
  config::DaemonSection& after = fresh->daemon;
  if (after.socket != before.socket || after.socket_mode != before.socket_mode || after.socket_group != before.socket_group ||
      after.state_directory != before.state_directory || after.roles != before.roles || after.log_file != before.log_file ||
      !same_devices(fresh->node.virtual_gpus, config_.node.virtual_gpus) || fresh->node.name != config_.node.name ||
      fresh->node.cluster != config_.node.cluster) {
    return Error{ErrorKind::unsupported,
                 config_path_ + ": socket, state_directory, roles, log_file, and node.virtual_gpus, name and cluster change at a restart only"};
  }
  config_ = std::move(*fresh);
  set_log_level(config_.daemon.log_level);
  server_->set_limits(static_cast<std::size_t>(config_.daemon.connections_at_most), config_.daemon.idle_timeout_s);
  decider_->reconfigure(config_, std::move(*pools));
  if (node_) node_->set_enforce(config_.node.enforce);
  if (config_.daemon.has_role("submit")) slurm_->start(config_.slurm);
  spdlog::info("configuration read again from {}", config_path_);
  return {};
}

void Daemon::maintain() {
  const double before_s = unix_time_s() - static_cast<double>(config_.submit.cache_days) * 86400;
  const auto forgotten = history_.forget_probes(before_s);
  if (!forgotten) spdlog::error("cannot forget old probes: {}", forgotten.error().message);
  if (forgotten && *forgotten > 0) spdlog::info("forgot {} probes older than {} days", *forgotten, config_.submit.cache_days);
  maintenance_timer_.start(kMaintenance_s);
}

void Daemon::end() {
  if (ending_since_s_ > 0) return;
  ending_since_s_ = monotonic_s();
  server_->stop_accepting();
  decider_->stop();
  server_->end_all({ErrorKind::unavailable, "gpumemd is ending"});
  end_timer_ = Timer(base_.get(), [this] { end_when_done(); });
  end_timer_.start(0);
}

void Daemon::end_when_done() {
  const bool done = server_->all_sent() && children_->count() == 0;
  if (done || monotonic_s() - ending_since_s_ > kEnd_s) {
    event_base_loopbreak(base_.get());
  } else {
    end_timer_.start(kEndLook_s);
  }
}

}  // namespace gpumem::home
