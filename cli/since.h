// SPDX-License-Identifier: Apache-2.0
// Times and amounts as people type them on the command line. Used by gpumem (the CLI).
#pragma once

#include <string>

#include "base/result.h"

namespace gpumem::cli {

// "30m", "12h", "7d", "2w": so long before `now_s`. "2026-11-20" and "2026-11-20 14:00[:05]" (or with a T between): local time.
Result<double> parse_since(const std::string& text, double now_s);

// "8%", "8", "7.5%".
Result<double> parse_percent(const std::string& text);

}  // namespace gpumem::cli
