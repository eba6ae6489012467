// SPDX-License-Identifier: Apache-2.0
// Device memory that a process took past PyTorch's allocator, by time: NCCL's buffers, NVIDIA's libraries, cudaMalloc of the
// program's own. Used by gpumem-probe, gpumem explain and tests. Pure.
//
// Note [Memory by time]
// The virtual GPU writes down all that a process takes (contracts: memory-<pid>.jsonl), PyTorch's tracer what its allocator takes. A
// cudaMalloc of PyTorch's is known by its segment's address, a piece of an expandable segment by the address that it was given first; the
// rest is outside. Both files have steady clocks that were set to Unix time at different instants, so they may differ by what the
// host's clock was corrected in between: PyTorch says its segment right after the device has given it, so the least distance
// between the two lines of a segment is that difference.
#pragma once

#include <cstdint>
#include <vector>

#include "estimator/allocator/requests.h"
#include "estimator/record/record.h"

namespace gpumem::allocator {

// Of one device as the process numbers it; by time, in ns since `file.start_ns` (what was before counts as 0).
std::vector<Outside> outside_of(const record::MemoryLog& log, const record::EventFile& file, int device);

// A process that wrote no allocator events: all of it, as a trace without requests.
Trace trace_of_outside(const record::MemoryLog& log, int device);

// The most that is outside at one moment.
std::uint64_t peak_outside(const std::vector<Outside>& outside);

}  // namespace gpumem::allocator
