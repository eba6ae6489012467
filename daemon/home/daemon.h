// SPDX-License-Identifier: Apache-2.0
// gpumemd put together: database, roles, socket, signals. Used by gpumemd's main().
//
// Order of life: open the database, take running jobs up again, listen. Order of death (SIGTERM): stop accepting, withdraw probes,
// answer who waits, close. Everything acknowledged was committed before, so SIGKILL at any moment loses nothing that anyone was told.
// SIGHUP reads the configuration again; one that cannot be used is refused as a whole and the old one stays.
// One thread, one loop. Roles, socket, state directory and log file are fixed for the process's life.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "daemon/child.h"
#include "daemon/config.h"
#include "daemon/event.h"
#include "daemon/home/decider.h"
#include "daemon/home/slurm_watch.h"
#include "daemon/node/node.h"
#include "daemon/server.h"
#include "db/history.h"

namespace gpumem::home {

class Daemon {
 public:
  // `config_path`: read again at SIGHUP; empty: there is none.
  static Result<std::unique_ptr<Daemon>> start(const config::Config& config, const std::string& config_path);
  ~Daemon();

  // Until SIGTERM or SIGINT.
  Status run();

 private:
  Daemon(const config::Config& config, const std::string& config_path, EventBase base, db::History history);

  Status start_node();
  Status start_server();
  void dispatch(const ExchangePtr& exchange);
  void introduce(Peer& peer) const;
  Status reload();
  void maintain();
  void end();
  void end_when_done();

  config::Config config_;
  const std::string config_path_;
  double started_s_;
  EventBase base_;
  db::History history_;
  std::unique_ptr<Children> children_;
  std::unique_ptr<SlurmWatch> slurm_;
  std::unique_ptr<Decider> decider_;
  std::unique_ptr<node::Node> node_;
  std::unique_ptr<Server> server_;
  std::vector<SignalEvent> signals_;
  Timer node_timer_;
  Timer maintenance_timer_;
  Timer end_timer_;
  double ending_since_s_ = 0;  // monotonic; 0: not ending
};

// ClusterName of a slurm.conf; empty when it cannot be told.
std::string cluster_name(const std::string& slurm_conf);

}  // namespace gpumem::home
