// SPDX-License-Identifier: Apache-2.0
// One submission's way through the plugin, the same for sbatch, salloc and srun: ask, tell the user, rewrite.
//
// Nothing here makes a submission fail, and nothing takes longer than the configured timeout. Ctrl-C while the daemon
// works means "submit without waiting". At most one line is printed besides the progress on a terminal.
#pragma once

#include "spank/request.h"
#include "spank/spank_api.h"

namespace gpumem::spank {

void submit(spank_t spank, Command command);

// A new job must not inherit the token of the job it is submitted from.
void forget_token(spank_t spank);

}  // namespace gpumem::spank
