// SPDX-License-Identifier: Apache-2.0
// Batches of different lengths in other orders than the one that was run: what PyTorch reserves then. Used by gpumem-probe and tests.
//
// Note [Orders]
// A probe runs one order of batches; the job will run another, which nobody knows. Where a loader's batches have several shapes, orders
// are drawn, with replacement, from the shapes that the shim looked at (a fixed seed: the same answer each time), the requests of each are
// made from the recorded ones (steps.h) and replayed. An order is as long as the run; where epochs were shortened or the run was ended early
// it is longer, by what repeats in it. The order that was run must come to the recorded peak, or nothing is said. How many orders: up to
// 128, fewer where the run was long.
// Pure; single-threaded; sizes in bytes.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/result.h"
#include "estimator/allocator/replay.h"
#include "estimator/record/record.h"

namespace gpumem::allocator {

inline constexpr int kMostOrders = 128, kLeastOrders = 8;
inline constexpr std::size_t kReplayedRequests = 2u << 20;  // of all orders: half a second, and the limits of some

struct Orders {
  int count = 0;
  std::size_t batches = 0;           // of an order
  std::size_t shapes = 0, looked_at = 0;  // different shapes drawn from; of how many that were looked at
  std::uint64_t lowest_bytes = 0, middle_bytes = 0, highest_bytes = 0;  // peak reserved
  std::uint64_t as_run_bytes = 0;    // of the recorded order
  std::uint64_t limit_bytes = 0;     // the smallest known that every order passes within, as in MinimumLimit
  int full = 0;                      // orders that run out of memory within the room there is; their peak counts as the room
};

// Whether batches differed: else there is nothing to ask.
bool has_orders(const record::Process& process);

// Of a process alone on its device, with `room_bytes` for its allocator there. `limit_bytes`: the minimum limit of the recorded order. Fails
// with a clause that says why nothing is known.
Result<Orders> replay_orders(const Participant& participant, const record::Process& process, std::uint64_t total_bytes, std::uint64_t room_bytes,
                             std::uint64_t limit_bytes);

}  // namespace gpumem::allocator
