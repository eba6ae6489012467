// SPDX-License-Identifier: Apache-2.0
// sbatch and salloc: S_CTX_ALLOCATOR. scrontab comes here too but never reaches post_opt.
#include "spank/contexts.h"
#include "spank/options.h"
#include "spank/request.h"
#include "spank/submit.h"

namespace gpumem::spank {

void allocator_init(spank_t spank) { forget_token(spank); }

void allocator_post_opt(spank_t spank) {
  // Slurm has just put the option where the job would see it, and jobs submitted by the job would inherit it.
  option_hide_from_job(spank);
  const Command command = running_command();
  if (command == Command::sbatch || command == Command::salloc) submit(spank, command);
}

}  // namespace gpumem::spank
