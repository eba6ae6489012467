// SPDX-License-Identifier: Apache-2.0
// What a recorded process asked its allocator for, without the answers: what a replay needs. Used by gpumem-probe, tests.
//
// Note [Requests from events]
// An allocation and its free are requests; where it was completed later than requested (another stream still used the
// block), that is one too. Segments given back without need (torch.cuda.empty_cache, cuDNN's benchmark) are one
// empty_cache a run of them; a private pool whose segments are among them was released before. An allocation that
// was refused is tried again and let go at once. Times in ns since the process's start; sizes in bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "estimator/allocator/allocator.h"
#include "estimator/record/events.h"
#include "estimator/record/record.h"

namespace gpumem::allocator {

struct Request {
  enum class Kind : std::uint8_t { allocate, free, free_later, complete, empty_cache, release_pool, memory_fraction, refused, step, batch };
  Kind kind;
  std::uint8_t pool;      // private pool, 0: none
  std::uint16_t origin;   // of allocate: the operator's number, with the highest bit for the backward pass; 0: not known
  std::uint32_t slot;     // of allocate, free, free_later, complete: which live allocation; reused afterwards
  std::uint64_t bytes;    // of allocate and refused; of step and batch its number; of memory_fraction the bits of a double
  std::uint64_t stream;
  std::uint64_t time_ns;
};

// Device memory that was taken past the allocator, or given back: the device has less room for requests after it.
struct Outside {
  std::uint64_t time_ns = 0;  // as a request's
  std::uint64_t bytes = 0;
  bool taken = true;
};

// What is held outside after a change.
constexpr std::uint64_t held_after(std::uint64_t held_bytes, const Outside& change) {
  return change.taken ? held_bytes + change.bytes : held_bytes - std::min(held_bytes, change.bytes);
}

// Of one process on one device, as the process numbers it.
struct Trace {
  std::vector<Request> requests;
  std::vector<Outside> outside;             // by time; empty where it is not known (outside.h fills it in)
  std::uint32_t slots = 0;                  // how many live at once at most
  std::uint64_t process = 0;
  std::uint64_t start_ns = 0;               // Unix time
  std::uint64_t peak_reserved_bytes = 0;    // as recorded: what a replay with the same settings must come to
  std::uint64_t peak_requested_bytes = 0;   // of live requests, before rounding: no limit is below it
  std::uint64_t refused = 0;                // out of memory, recorded
  std::uint64_t unknown = 0;                // events that fit nothing before them: the record has gaps
  bool private_pools = false;
};

// By device. Any events are accepted; what fits nothing is counted in `unknown`.
std::map<int, Trace> traces_of(const record::EventFile& file);

// The settings under which a process ran its allocator. Fails, with a clause that says why, where this model cannot speak of it:
// a PyTorch that it does not know, settings that were not recorded or that PyTorch refuses, another allocator than PyTorch's own.
Result<Config> config_of(const record::Process& process);

}  // namespace gpumem::allocator
