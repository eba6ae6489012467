// SPDX-License-Identifier: Apache-2.0
// What would lower a peak, as far as a record shows it. Part of explain/ (see explain.h).
#pragma once

#include <unordered_map>

#include "estimator/explain/explain.h"

namespace gpumem::explain {

struct PeakBlocks {
  const std::vector<Block>& blocks;     // that live at the peak
  const record::Process& process;
  const Explanation& explanation;       // but for its candidates
  std::uint64_t staying_gradient_bytes; // see below
};

// Largest saving first. Savings are of the blocks named, not of the peak that a changed program would have: another moment
// becomes the peak then. `gpumem estimate` of the changed program tells.
std::vector<Candidate> find_candidates(const PeakBlocks& peak);

// Bytes of gradients that outlive the step after which they were listed by a whole iteration: zeroed, not let go of.
std::uint64_t gradients_that_stay(const std::vector<Block>& blocks, const std::unordered_map<std::size_t, Kind>& listed,
                                  const std::map<std::uint64_t, std::size_t>& marks);

}  // namespace gpumem::explain
