// SPDX-License-Identifier: Apache-2.0
// What the plugin does at each of SPANK's hooks, by context. Used by dispatch.cpp alone.
//
// Every function returns 0 unless it means the submission or the task to fail, and says why if so: the plugin is in
// everybody's way, so whatever goes wrong the job goes on as if there were no plugin.
#pragma once

#include "spank/spank_api.h"

namespace gpumem::spank {

// sbatch, salloc: before anything is parsed, and once the request is complete.
void allocator_init(spank_t spank);
void allocator_post_opt(spank_t spank);

// srun: a job of its own, or a step inside one.
void local_init(spank_t spank);
void local_post_opt(spank_t spank);

// slurmstepd, as root, in the child that will become the task; a negative value fails the task.
int remote_task_init_privileged(spank_t spank);
// slurmstepd, as root, once the task has ended.
void remote_task_exit(spank_t spank);

}  // namespace gpumem::spank
