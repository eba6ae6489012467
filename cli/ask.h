// SPDX-License-Identifier: Apache-2.0
// Asks gpumemd and gets its JSON. Used by gpumem's history, show, status and margin.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace gpumem::cli {

using Json = nlohmann::ordered_json;

// GPUMEM_SOCKET, else what gpumem.conf says, else this installation's socket (there is no file, or it is not for this
// user). A file with errors is an error: the daemon would not start with it either.
Result<std::string> daemon_socket();

// Sends one request (contracts: Socket protocol) and parses the answer's `json`. Fails with the daemon's own error,
// or with unavailable and what to do when there is no daemon.
Result<Json> ask_daemon(const char* request, const std::vector<std::pair<const char*, std::string>>& fields);

}  // namespace gpumem::cli
