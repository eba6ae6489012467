// SPDX-License-Identifier: Apache-2.0
// Whether the files that a probe read are still what they were. Used by gpumemd, role submit.
//
// Looked at in a child with the user's identity: root may not see a root-squashed home, and a file server that hangs must not
// stop the loop. The answer comes from the loop.
#pragma once

#include <functional>
#include <vector>

#include "daemon/child.h"
#include "db/history.h"

namespace gpumem::submit {

// Calls `done(true)` when every file has the size and time it had, `done(false)` otherwise, also when it cannot be told.
void check_files(Children& children, const Identity& identity, std::vector<db::ProbedFile> files, std::function<void(bool same)> done);

}  // namespace gpumem::submit
