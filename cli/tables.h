// SPDX-License-Identifier: Apache-2.0
// The daemon's JSON as text for people: sizes as "5.2 GiB", times in local time. Used by gpumem (the CLI).
//
// Pure functions of the JSON (contracts: Answers to people's commands). Whatever is missing shows as "-".
#pragma once

#include <string>
#include <vector>

#include "cli/ask.h"

namespace gpumem::cli {

// Columns as wide as their longest cell; those named in `right` stand right. Trailing blanks are cut.
std::string format_table(const std::vector<std::string>& heads, const std::vector<std::vector<std::string>>& rows,
                         const std::string& right);

std::string format_history(const Json& answer);
std::string format_show(const Json& answer);
// `now_s`: for how long things have been running.
std::string format_status(const Json& answer, double now_s);
std::string format_margins(const Json& answer);
// "pool demo, user anna": whom a margin is for; "everything" where no field is named.
std::string format_scope(const Json& margin);

}  // namespace gpumem::cli
