// SPDX-License-Identifier: Apache-2.0
// The environment that a task gets on the node: preloads, books, stand-ins. Used by gpumemd.
//
// Pure functions. What a job already has in LD_PRELOAD and PATH stays, behind ours; what is already ours (a step
// inherits it from its batch script) is not added twice.
#pragma once

#include <string>
#include <vector>

#include "daemon/node/settings.h"

namespace gpumem::node {

// What the plugin does to the task's environment before it starts it.
struct JobEnvironment {
  std::vector<std::string> set;    // "NAME=VALUE"
  std::vector<std::string> unset;
  std::string refuse;              // a sentence: the task must not run; empty: it may
};

struct TaskBooks {
  std::string job_key;             // GPUMEM_JOB
  std::string meter_book;          // path
  std::string seen_workspaces;     // path of GPUMEM_WORKSPACES_SEEN; empty: cuDNN's workspaces are not written down
  std::string device_book;         // path of the shared virtual GPUs; empty: real GPUs
  std::uint64_t context_bytes = 0; // of one process on this GPU model; 0: not known
};

// Elements of LD_PRELOAD (blanks and colons separate) or PATH (colons).
std::vector<std::string> split_list(const std::string& text, const char* separators);

// `ours` in front, then everything of `theirs` that is not among ours, joined by ':'.
std::string put_in_front(const std::vector<std::string>& ours, const std::string& theirs, const char* separators);

// For a task with a GPU. `environment` holds the job's own LD_PRELOAD and PATH, where it has them.
JobEnvironment environment_with_gpu(const Settings& settings, const TaskBooks& books,
                                    const std::vector<std::string>& environment);

// For a step of a shared job that asked for no GPU (srun --gres=none): it must see none.
JobEnvironment environment_without_gpu(const Settings& settings);

}  // namespace gpumem::node
