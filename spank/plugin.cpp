// SPDX-License-Identifier: Apache-2.0
// The names by which Slurm finds the plugin. Loaded by sbatch, salloc, srun, slurmd and slurmstepd.
//
// Declared extern first: SPANK_PLUGIN's constants would otherwise have internal linkage in C++ and not be exported.
#include "spank/spank_api.h"

extern "C" {
extern const char plugin_name[];
extern const char plugin_type[];
extern const unsigned int plugin_version;
extern const unsigned int spank_plugin_version;

#pragma GCC visibility push(default)
SPANK_PLUGIN(gpumem, 1)
#pragma GCC visibility pop
}
