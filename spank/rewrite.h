// SPDX-License-Identifier: Apache-2.0
// Carries out a decision on the request that is about to be submitted: resets options, then sets others, by name.
// Runs in sbatch, salloc and srun. All or nothing: when one step does not do what it should, those before it are undone.
#pragma once

#include <stddef.h>

#include "daemon/client/client.h"
#include "spank/slurm_options.h"

namespace gpumem::spank {

// `reply` is a `decision` whose action is rewrite. True when every `reset` and `set` is in force; otherwise the request
// is as it was and `problem` says what went wrong.
bool rewrite_apply(const SlurmOptions& options, const client::Reply* reply, char* problem, size_t problem_bytes);

// Inside a job whose GPU request was rewritten there is no gres/gpu to step into: a step that asks for GPUs inherits the
// job's shards instead. Does nothing when the step asks for no GPU.
void rewrite_step(const SlurmOptions& options);

}  // namespace gpumem::spank
