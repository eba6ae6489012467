// SPDX-License-Identifier: Apache-2.0
// Runs gpumem-probe and waits for its estimate. Used by gpumem (the CLI); gpumemd does it from its event loop.
#pragma once

#include <functional>
#include <string>

#include "base/result.h"
#include "estimator/probe/request.h"

namespace gpumem::probe {

struct ClientOptions {
  std::string program;                                                      // path of gpumem-probe
  std::function<void(const std::string& text, double elapsed_s)> progress;  // may be empty
};

// Blocks until the estimate is there. The probed program's output goes to our standard error (or is kept, as the
// request says). Fails with unavailable where gpumem-probe cannot be run or ends without an estimate.
Result<nlohmann::json> ask_probe(const Request& request, const ClientOptions& options);

}  // namespace gpumem::probe
