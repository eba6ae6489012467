// SPDX-License-Identifier: Apache-2.0
// An explanation (contracts: Explanation) as text for people. Used by gpumem explain.
#pragma once

#include <nlohmann/json.hpp>

#include <cstddef>
#include <string>

namespace gpumem::cli {

// `most`: modules and operators listed of each.
std::string explain_table(const nlohmann::json& explanation, std::size_t most);

}  // namespace gpumem::cli
