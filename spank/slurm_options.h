// SPDX-License-Identifier: Apache-2.0
// The request that sbatch, salloc or srun is about to submit, read and written by option name.
//
// Slurm's libslurmfull has slurm_option_get/isset/set/reset for cli_filter plugins; sbatch, salloc and srun export their
// `opt`. The same in 22.05 to 26.05, but not a promised interface: every symbol is looked up at run time, and where one
// is missing there is no SlurmOptions and the job is left alone. No layout of any structure is assumed.
#pragma once

namespace gpumem::spank {

struct SlurmOptions {
  void* opt;
  char* (*get_value)(void* opt, const char* name);
  bool (*is_set_value)(void* opt, const char* name);
  int (*set_value)(void* opt, const char* name, const char* value, bool early);
  bool (*reset_value)(void* opt, const char* name);

  // The value's text when the option is in force, null otherwise. It belongs to Slurm's heap and is not given back: a
  // command that is about to end reads some thirty of them.
  const char* get(const char* name) const;
  bool reset(const char* name) const;
  bool set(const char* name, const char* value) const;
};

// False when Slurm lacks any of it.
bool slurm_options_find(SlurmOptions* options);

// The first option by which the request asks for a GPU ("gres", "gpus", …), null when there is none.
const char* gpu_request(const SlurmOptions& options);

}  // namespace gpumem::spank
