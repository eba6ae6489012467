// SPDX-License-Identifier: Apache-2.0
// Whether the files that a probe read are still what they were. Used by gpumemd, role submit.
//
// Looked at in a child with the user's identity: root may not see a root-squashed home, and a file server that hangs must not
// stop the loop. The answer comes from the loop.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "daemon/child.h"
#include "db/history.h"

namespace gpumem::submit {

// A file that is not there: the program looked for it, and it must not have appeared since.
inline constexpr std::int64_t kAbsent_ns = -1;

// Calls `done` with size and time of each path, in order; with nothing when it cannot be told.
void look_at_files(Children& children, const Identity& identity, std::vector<std::string> paths,
                   std::function<void(std::vector<db::ProbedFile>)> done);

// Calls `done(true)` when every file has the size and time it had, `done(false)` otherwise, also when it cannot be told.
void check_files(Children& children, const Identity& identity, std::vector<db::ProbedFile> files, std::function<void(bool same)> done);

}  // namespace gpumem::submit
