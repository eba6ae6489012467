// SPDX-License-Identifier: Apache-2.0
// Slurm's own option accessors, found by name in the running command.
#include "spank/slurm_options.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

namespace gpumem::spank {
namespace {

template <class Function>
bool find(const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
  return *function != nullptr;
}

// "gpu" as a gres or tres name of its own in "gpu:1,license:2", "gres:gpu:1" or "gres/gpu=1": not in "gpumem" or "nogpu".
bool names_gpu(const char* list) {
  for (const char* at = strstr(list, "gpu"); at != nullptr; at = strstr(at + 3, "gpu")) {
    const bool begins = at == list || strchr(",:/ ", at[-1]) != nullptr;
    const bool ends = at[3] == '\0' || strchr(",:=", at[3]) != nullptr;
    if (begins && ends) return true;
  }
  return false;
}

}  // namespace

const char* SlurmOptions::get(const char* name) const {
  // tres-per-task is filled by --gpus-per-task without being "set" (24.11 and newer).
  if (!is_set_value(opt, name) && strcmp(name, "tres-per-task") != 0) return nullptr;
  const char* value = get_value(opt, name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

bool SlurmOptions::reset(const char* name) const {
  if (!reset_value(opt, name)) return false;
  return !is_set_value(opt, name);
}

bool SlurmOptions::set(const char* name, const char* value) const {
  return set_value(opt, name, value, false) == 0 && is_set_value(opt, name);
}

bool slurm_options_find(SlurmOptions* options) {
  options->opt = dlsym(RTLD_DEFAULT, "opt");
  return options->opt != nullptr && find("slurm_option_get", &options->get_value) &&
         find("slurm_option_isset", &options->is_set_value) && find("slurm_option_set", &options->set_value) &&
         find("slurm_option_reset", &options->reset_value);
}

const char* gpu_request(const SlurmOptions& options) {
  static constexpr const char* kCounts[] = {"gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket"};
  static constexpr const char* kLists[] = {"gres", "tres-per-task"};
  for (const char* name : kLists) {
    const char* value = options.get(name);
    if (value != nullptr && names_gpu(value)) return name;
  }
  for (const char* name : kCounts) {
    const char* value = options.get(name);
    if (value != nullptr && strcmp(value, "0") != 0) return name;
  }
  return nullptr;
}

}  // namespace gpumem::spank
