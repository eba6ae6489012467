// SPDX-License-Identifier: Apache-2.0
// srun: S_CTX_LOCAL. Either a job of its own or a step inside one.
#include <stdlib.h>

#include "spank/contexts.h"
#include "spank/options.h"
#include "spank/request.h"
#include "spank/rewrite.h"
#include "spank/slurm_options.h"
#include "spank/submit.h"

namespace gpumem::spank {

void local_init(spank_t spank) {
  // A step keeps the token of its job, which salloc or sbatch has put into the environment.
  if (getenv("SLURM_JOB_ID") == nullptr) forget_token(spank);
}

void local_post_opt(spank_t spank) {
  option_hide_from_job(spank);
  SlurmOptions options;
  if (!slurm_options_find(&options)) return;
  if (enclosing_job(options) == nullptr) {
    submit(spank, Command::srun);
    return;
  }
  // Inside a job that has shards no step can have gres/gpu: "Step requested GRES (gpu) not found".
  if (getenv("SLURM_SHARDS_ON_NODE") != nullptr) rewrite_step(options);
}

}  // namespace gpumem::spank
