// SPDX-License-Identifier: Apache-2.0
// The one option that gpumem adds to sbatch, salloc and srun: --gpumem=auto|off|SIZE.
//
// Its value arrives by callback while Slurm parses (spank_option_getopt does not answer in the hooks that need it) and
// is kept for the process. A value that is none of the three is a usage error: Slurm then submits nothing.
#pragma once

#include <stdint.h>

#include "spank/spank_api.h"

namespace gpumem::spank {

enum class Wish { none, automatic, off, size };

struct OptionValue {
  Wish wish;
  uint64_t bytes;   // with Wish::size
  char text[32];    // as the user wrote it
};

void option_register(spank_t spank);
const OptionValue& option_value();

// Takes the option out of what the job will see, or jobs that it submits would inherit it.
void option_hide_from_job(spank_t spank);

}  // namespace gpumem::spank
