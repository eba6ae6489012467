// SPDX-License-Identifier: Apache-2.0
// Where gpumemd's log goes: standard error as the journal likes it, or a file. Used by gpumemd.
#pragma once

#include <string>

#include "base/result.h"

namespace gpumem {

// `file` empty: standard error, each line with the journal's priority in front where the journal reads it, else with the time.
Status start_log(const std::string& file, const std::string& level);
void set_log_level(const std::string& level);

}  // namespace gpumem
