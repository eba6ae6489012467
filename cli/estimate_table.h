// SPDX-License-Identifier: Apache-2.0
// An estimate as a table for people. Used by gpumem.
#pragma once

#include <nlohmann/json.hpp>

#include <string>

namespace gpumem::cli {

// Lines of text, each ending in a newline. Takes any estimate of version 1; absent keys leave their lines out.
std::string estimate_table(const nlohmann::json& estimate);

}  // namespace gpumem::cli
