// SPDX-License-Identifier: Apache-2.0
// The table of learned workspaces: workspaces.tsv, one line a plan (doc/contracts.md, "Learned workspaces").
// Compiled into the preloaded libraries and into libworkspaces.a (gpumemd): libc only, no heap.
//
//   GPU name <tab> cuDNN version <tab> key <tab> workspace bytes <tab> label <newline>
//
// The version is cudnnGetVersion's number (90100), the key 16 hex digits (plans.h), the label for people only.
// Lines that are not of this form are skipped: a torn or foreign line never spoils the others.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace gpumem::workspaces {

constexpr size_t kMaxLine = 320;
constexpr size_t kMaxTableBytes = size_t{64} << 20;  // larger files are not read

struct Entry {
  const char *gpu;  // not terminated
  size_t gpu_length;
  uint64_t cudnn_version, key, workspace_bytes;
  const char *label;
  size_t label_length;
};

// Reads one line (without its newline); false when it is none.
bool parse(const char *line, size_t length, Entry *entry);
// Writes the line of an entry, newline included; its length, or 0 if it does not fit.
size_t format(const Entry &entry, char *line, size_t size);

// A table in memory: not owned.
struct Table {
  const char *text = nullptr;
  size_t bytes = 0;
};
// Maps the file; false when there is none or it cannot be used. It stays mapped until unmap().
bool map(const char *path, Table *table);
void unmap(Table *table);
// The workspace of a plan; false when it was not learned. The first line of that GPU, version and key counts.
bool look_up(const Table &table, const char *gpu, uint64_t cudnn_version, uint64_t key, uint64_t *workspace_bytes);

}  // namespace gpumem::workspaces
