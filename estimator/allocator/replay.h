// SPDX-License-Identifier: Apache-2.0
// Recorded requests under another capacity or other settings: peaks, out of memory or not, the minimum limit. Used by
// gpumem-probe, gpumem explain and tests. Pure; sizes in bytes; single-threaded.
//
// Note [Minimum limit]
// The smallest capacity under which the same requests of all participants meet no out of memory that they did not meet
// when they were recorded: cached memory is given back and the request tried again as PyTorch does. Found by bisection
// over multiples of 2 MiB, the device's granularity, between what is live at once and what the cache takes without
// need. Fragmentation is not monotonic in theory: what is returned has been replayed and passes.
//
// Note [A lagging device]
// A record is of a device that has done its work when it is queued, so memory that another stream used comes back at
// the next allocation. A real device lags behind its host, by at most 1024 launches (kMostQueued in the virtual GPU's
// streams.h); an operator launches at least once for most allocations. So memory that comes back `lag_allocations` = 1024
// allocations later is an upper bound of what any device keeps; that the program waits in between is not known here and
// left out. It ends early where PyTorch itself waits: when the cache is emptied, and before it runs out of memory.
//
// Note [Outside]
// Memory that was taken past PyTorch's allocator (outside.h) is taken at its time here, too. Nothing is given back for it: who asks
// the device itself (NCCL, a library, the program) does not know PyTorch's cache, so where it finds no room the run has failed. A
// limit is therefore not what the allocator needs plus all that libraries take: what comes after a peak may take the room that
// the cache did not get, and needs more than that where the cache has grown into it. So a smaller capacity may pass where a larger one
// fails; a limit gets a margin, so it must be one above which nothing fails: beside the bisection capacities are tried at which memory
// outside would just not find the room that it had with all the memory that the cache likes, and some evenly between.
//
// Note [Participants]
// Processes that use one device at once. Their requests are merged by time as recorded; each has a cache of its own,
// gives back only its own, and holds nothing after its last event. How processes of the next run interleave is
// not known: with several the answer is that of this run, and needs a proof.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "estimator/allocator/requests.h"

namespace gpumem::allocator {

struct Participant {
  const Trace* trace = nullptr;
  Config config;
};

struct ReplayOptions {
  std::uint64_t capacity_bytes = kNoLimit;   // of all participants together, without contexts; what is outside counts
  std::uint64_t total_bytes = std::uint64_t{16} << 30;  // what the device says it has: fractions are of it
  bool stop_at_out_of_memory = true;
  std::uint64_t lag_allocations = 0;     // Note [A lagging device]
  // Called after each request, with its number and the participant's state; may be empty. For timelines.
  std::function<void(std::size_t participant, std::size_t request, const Allocator& allocator)> observe;
};

inline constexpr std::uint64_t kLagAllocations = 1024;
// Some memory was used by another stream than its own: only then does a lag make a difference.
bool crosses_streams(const Trace& trace);

struct ReplayResult {
  bool out_of_memory = false;            // a request was refused that had been served when it was recorded, or memory outside
  std::size_t failed_participant = 0, failed_request = 0;  // the latter: the request that would have come next
  std::uint64_t failed_bytes = 0;
  std::uint64_t peak_device_bytes = 0;   // of all participants at one moment, with what is outside
  std::uint64_t events = 0;              // requests replayed
  std::vector<std::uint64_t> after_outside_bytes;  // on the device, right after each change of what is outside
  std::vector<Stats> stats;              // of each participant
};

ReplayResult replay(std::span<const Participant> participants, const ReplayOptions& options = {});
ReplayResult replay(const Trace& trace, const Config& config, const ReplayOptions& options = {});

struct MinimumLimit {
  std::uint64_t limit_bytes = 0;           // all participants, without contexts
  std::uint64_t peak_device_bytes = 0;     // with all the memory that they like: peak reserved, and what is outside
  std::uint64_t peak_reserved_bytes = 0;   // sum of the participants' own peaks
  std::uint64_t peak_allocated_bytes = 0;  // sum of the participants' own peaks
  std::uint64_t retries = 0;               // at the limit: how often everything cached was given back for a request
  int replays = 0;
};

// nullopt: even without a limit a request is refused (a fraction set by the program).
std::optional<MinimumLimit> find_minimum_limit(std::span<const Participant> participants, std::uint64_t total_bytes);

// True where the limit is enough on a device that lags, too.
bool passes_lagging(std::span<const Participant> participants, std::uint64_t total_bytes, std::uint64_t limit_bytes);

// True where the model, with the recorded settings and no limit, comes to the peak that was recorded: only then do its
// other answers speak of this process. `peak_device_bytes`: what that replay came to with what is outside.
bool reproduces(const Participant& participant, std::uint64_t total_bytes, std::uint64_t* peak_device_bytes = nullptr);

}  // namespace gpumem::allocator
