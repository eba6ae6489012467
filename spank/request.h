// SPDX-License-Identifier: Apache-2.0
// Gathers what the daemon needs to decide: the request's options, the job script, the environment. Runs in sbatch,
// salloc and srun, as the user, and reads only what the user can read.
#pragma once

#include "daemon/client/client.h"
#include "spank/slurm_options.h"

namespace gpumem::spank {

enum class Command { unknown, sbatch, salloc, srun };

// By the name of the running program.
Command running_command();
const char* command_name(Command command);

// Fills a `decide` request (doc/contracts.md, Socket protocol). What cannot be found out is left out. The caller frees it.
void request_gather(client::Request* request, Command command, const SlurmOptions& options, const char* mode,
                    const char* slurm_version, double deadline_s);

// The id of the job inside which this command runs or into which it steps; null outside of any.
const char* enclosing_job(const SlurmOptions& options);

}  // namespace gpumem::spank
