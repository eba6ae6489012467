// SPDX-License-Identifier: Apache-2.0
// One probe from request to estimate. Part of gpumem-probe; a function of its own so that tests can call it.
#pragma once

#include <nlohmann/json.hpp>

#include <functional>
#include <string>

#include "base/result.h"
#include "estimator/probe/request.h"

namespace gpumem::probe {

// Called about once a second with a sentence for people.
using Progress = std::function<void(const std::string& text, double elapsed_s)>;

// Runs the program and returns the estimate. Whatever the program does is in the estimate; an Error means that the
// probe itself could not work (no writable directory, no book). Leaves nothing behind but compiled tracers in the
// calling user's own cache.
Result<nlohmann::json> run_probe(const Request& request, const Progress& progress);

}  // namespace gpumem::probe
