// SPDX-License-Identifier: Apache-2.0
// What people ask of gpumemd (gpumem history, show, status, margin) and its answers as JSON. Used by gpumemd, loop thread only.
//
// Each function takes the request's message and answers with `answer` (one field `json`; shapes: doc/contracts.md, Answers
// to people's commands) or an Error for an `error` frame. Who asks comes from the socket, never from the message:
// users see their own rows; operators see all, and only they set margins.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "daemon/config.h"
#include "daemon/node/node.h"
#include "daemon/peer.h"
#include "daemon/protocol/fields.h"
#include "db/history.h"

namespace gpumem::home {

// The submit role's probes at this moment.
struct ProbeQueueStatus {
  std::uint64_t running = 0, waiting = 0;
  std::uint64_t at_once = 0;       // how many may run together
};

// What `status` tells beside the history. `node` is null where this host lacks the node role.
struct DaemonStatus {
  double started_s = 0;
  const config::Config* config = nullptr;
  ProbeQueueStatus probes;
  node::Node* node = nullptr;
};

Result<protocol::Message> answer_history(const db::History& history, const Peer& peer, const protocol::Message& request);
Result<protocol::Message> answer_show(const db::History& history, const Peer& peer, const protocol::Message& request);
Result<protocol::Message> answer_status(const db::History& history, const Peer& peer, const DaemonStatus& status);

Result<protocol::Message> answer_margin_list(const db::History& history, const Peer& peer, const config::Config& config);
// `profiles_directory`: a GPU is stored by the name that its profile has.
Result<protocol::Message> answer_margin_set(db::History& history, const Peer& peer, const config::Config& config,
                                            const std::string& profiles_directory, const protocol::Message& request);
Result<protocol::Message> answer_margin_unset(db::History& history, const Peer& peer, const std::string& profiles_directory,
                                              const protocol::Message& request);

}  // namespace gpumem::home
