// SPDX-License-Identifier: Apache-2.0
// Adds what a job's meter has seen to a node's table of learned workspaces. Used by gpumemd.
//
// The file of a job belongs to its user, so nothing in it is believed beyond its form: only plans of the job's GPU, no
// workspace larger than that GPU, at most kMostOfJob lines. Where two jobs disagree the larger size is kept: a limit that
// lacks room for a workspace costs its job time, one with too much room costs a few MiB.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace gpumem::workspaces {

constexpr int kMostOfJob = 4096;        // lines taken of one job
constexpr int kMostOfTable = 200000;    // lines of a table; further new plans are not added

struct Merged {
  int added = 0, grown = 0, refused = 0;  // lines: new plans, larger than before, not believed
};

// `seen` is the job's file (absent or empty: nothing to do), `table` the node's, rewritten at once (rename) if it changes, 0644.
Result<Merged> merge(const std::string& seen, const std::string& table, const std::string& gpu, std::uint64_t device_bytes);

}  // namespace gpumem::workspaces
