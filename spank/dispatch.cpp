// SPDX-License-Identifier: Apache-2.0
// SPANK's entry points: one switch on the context each, nothing else. Runs in Slurm's commands and in slurmstepd.
#include "spank/contexts.h"
#include "spank/options.h"
#include "spank/settings.h"

#pragma GCC visibility push(default)
extern "C" {

int slurm_spank_init(spank_t spank, int ac, char** av) {
  using namespace gpumem::spank;
  const spank_context_t context = spank_context();
  // slurmd runs no job, and the prolog's process sees none of what matters here.
  if (context == S_CTX_SLURMD || context == S_CTX_JOB_SCRIPT || context == S_CTX_ERROR) return 0;
  settings_read(ac, av);
  option_register(spank);
  switch (context) {
    case S_CTX_ALLOCATOR: allocator_init(spank); break;
    case S_CTX_LOCAL: local_init(spank); break;
    default: break;
  }
  return 0;
}

int slurm_spank_init_post_opt(spank_t spank, int, char**) {
  switch (spank_context()) {
    case S_CTX_ALLOCATOR: gpumem::spank::allocator_post_opt(spank); break;
    case S_CTX_LOCAL: gpumem::spank::local_post_opt(spank); break;
    default: break;
  }
  return 0;
}

int slurm_spank_task_init_privileged(spank_t spank, int, char**) {
  if (spank_context() != S_CTX_REMOTE) return 0;
  return gpumem::spank::remote_task_init_privileged(spank);
}

int slurm_spank_task_exit(spank_t spank, int, char**) {
  if (spank_context() == S_CTX_REMOTE) gpumem::spank::remote_task_exit(spank);
  return 0;
}
}
#pragma GCC visibility pop
