// SPDX-License-Identifier: Apache-2.0
// A kept record as one JSON object (contracts: Explanation). Used by gpumem explain.
#pragma once

#include <nlohmann/json.hpp>

#include <string>

#include "base/result.h"

namespace gpumem::explain {

// `directory` is a kept record (estimator/probe/kept_record.h). Runs no program: what other settings of the allocator
// would do comes from replaying the requests through its model. Fails with not_found or io where there is no record
// with allocator events in it, and says why there are none.
Result<nlohmann::json> explain_record(const std::string& directory);

}  // namespace gpumem::explain
