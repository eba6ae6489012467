// SPDX-License-Identifier: Apache-2.0
// Applies a decision through Slurm's option accessors and takes it back if anything is unexpected.
#include "spank/rewrite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/protocol/messages.h"

namespace gpumem::spank {
namespace {

namespace field = protocol::field;

// More than the daemon ever touches; a decision that wants more is not carried out.
constexpr size_t kMostChanges = 32;
constexpr size_t kLargestName = 64;

// What an option was before it was touched.
struct Before {
  char name[kLargestName];
  char* value;  // null: it was not set
};

struct Undo {
  Before entries[kMostChanges];
  size_t count;
};

bool remember(const SlurmOptions& options, const char* name, Undo* undo) {
  for (size_t i = 0; i < undo->count; ++i) {
    if (strcmp(undo->entries[i].name, name) == 0) return true;
  }
  if (undo->count == kMostChanges || strlen(name) >= kLargestName) return false;
  Before* before = &undo->entries[undo->count];
  const char* value = options.get(name);
  before->value = value != nullptr ? strdup(value) : nullptr;
  if (value != nullptr && before->value == nullptr) return false;
  snprintf(before->name, sizeof before->name, "%s", name);
  ++undo->count;
  return true;
}

void roll_back(const SlurmOptions& options, const Undo& undo) {
  for (size_t i = undo.count; i-- > 0;) {
    const Before& before = undo.entries[i];
    options.reset(before.name);
    if (before.value != nullptr) options.set(before.name, before.value);
  }
}

void forget(Undo* undo) {
  for (size_t i = 0; i < undo->count; ++i) free(undo->entries[i].value);
  undo->count = 0;
}

bool apply_set(const SlurmOptions& options, const char* name, const char* value) {
  if (!options.set(name, value)) return false;
  // Slurm normalises some values ("4096" becomes "4G", "shard:5" "gres:shard:5"): only gres must hold ours to the letter.
  const char* now = options.get(name);
  return now != nullptr && (strcmp(name, "gres") != 0 || strstr(now, value) != nullptr);
}

// "NAME=VALUE" in two; false when it is not that or the name is too long.
bool split(const char* assignment, char name[kLargestName], const char** value) {
  const char* equals = strchr(assignment, '=');
  if (equals == nullptr || equals == assignment || static_cast<size_t>(equals - assignment) >= kLargestName) return false;
  memcpy(name, assignment, static_cast<size_t>(equals - assignment));
  name[equals - assignment] = '\0';
  *value = equals + 1;
  return true;
}

bool apply(const SlurmOptions& options, const client::Reply* reply, Undo* undo, char* problem, size_t problem_bytes) {
  const char* text;
  for (size_t i = 0; (text = client::reply_text_at(reply, field::kReset, i)) != nullptr; ++i) {
    // gres/gpu contradicts what replaces it: an option that this Slurm does not have contradicts nothing.
    if (options.get(text) == nullptr) continue;
    if (!remember(options, text, undo) || !options.reset(text)) {
      snprintf(problem, problem_bytes, "Slurm did not take back --%s", text);
      return false;
    }
  }
  for (size_t i = 0; (text = client::reply_text_at(reply, field::kSet, i)) != nullptr; ++i) {
    char name[kLargestName];
    const char* value;
    if (!split(text, name, &value) || !remember(options, name, undo) || !apply_set(options, name, value)) {
      snprintf(problem, problem_bytes, "Slurm did not take --%s", text);
      return false;
    }
  }
  return true;
}

}  // namespace

bool rewrite_apply(const SlurmOptions& options, const client::Reply* reply, char* problem, size_t problem_bytes) {
  Undo undo;
  undo.count = 0;
  const bool applied = apply(options, reply, &undo, problem, problem_bytes);
  if (!applied) roll_back(options, undo);
  forget(&undo);
  return applied;
}

void rewrite_step(const SlurmOptions& options) {
  static constexpr const char* kGpuOptions[] = {
      "gres",         "gpus",     "gpus-per-node", "gpus-per-socket", "gpus-per-task", "tres-per-task", "tres-bind",
      "gpu-bind",     "gpu-freq", "mem-per-gpu",   "cpus-per-gpu",    "ntasks-per-gpu",
  };
  if (gpu_request(options) == nullptr) return;
  for (const char* name : kGpuOptions) {
    if (options.get(name) != nullptr) options.reset(name);
  }
}

}  // namespace gpumem::spank
