// SPDX-License-Identifier: Apache-2.0
// The socket messages job_start and task_end for a Node. Used by gpumemd, on the loop thread.
//
// Both are believed from privileged peers alone (root, SlurmUser, the daemon's own user); others get `permission`.
#pragma once

#include "base/result.h"
#include "daemon/node/node.h"
#include "daemon/peer.h"
#include "daemon/protocol/fields.h"

namespace gpumem::node {

// Replies `job_environment` and `done` (contracts: Socket protocol); an Error is for an `error` frame.
Result<protocol::Message> answer_job_start(Node& node, const Peer& peer, const protocol::Message& request);
Result<protocol::Message> answer_task_end(Node& node, const Peer& peer, const protocol::Message& request);

}  // namespace gpumem::node
