// SPDX-License-Identifier: Apache-2.0
// The minimum limit of a device from what its processes asked their allocators for. Part of estimate/ (see estimate.h).
//
// Note [Minimum need]
// The device's peak without pressure is N: contexts, what libraries took past PyTorch's allocator, and the allocators'
// segments. Replayed, the same requests of all processes take P at their peak with what libraries took at its time
// (allocator/outside.h), and pass within L (allocator/replay.h). Then N - (P - L) is enough for the same run. It speaks of the device
// only where the model comes to the recorded peak of every process that allocated there, and nothing was refused. Where it is not
// known when libraries took memory, P and L are of the allocators alone and the libraries' memory is counted in full, as it was at the
// device's peak: what they take later than the allocators' peak may then not fit, which a proof shows.
//
// Note [Both clocks]
// The record is of a device that is never behind. On one that lags, memory that another stream used comes back later and the cache
// grows, which shows as a larger peak reserved. Need and minimum do not take that larger figure: before PyTorch runs out of memory it
// waits for that memory and gives its cache back. That L is enough under the lag as well is replayed, and where it is not, L is
// raised to what is.
//
// Note [Unknown order]
// Where batches differ in length P and L are those of the one order that was run. Other orders are replayed (allocator/orders.h) with H the
// highest of their peaks, P among them. Then the device's peak is taken as N + (H - P), which no replayed order exceeds, and L as the
// smallest limit that all orders pass within; peak reserved, the best single guess, is the middle order's. When libraries take memory in
// another order is not known: the most that they held counts all the time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "estimator/allocator/orders.h"
#include "estimator/estimate/estimate.h"

namespace gpumem::estimate {

struct DeviceMinimum {
  std::uint64_t saved_bytes = 0;      // P - L, or H - L
  std::uint64_t retries = 0;          // at L: how often all cached memory was given back for a request
  std::uint64_t processes = 0;        // replayed together
  // On a device that lags behind its host (allocator/replay.h) PyTorch's cache takes this much more than P, as far as there is room.
  std::optional<std::uint64_t> lag_bytes;  // nullopt: no memory was used by another stream than its own
  std::optional<allocator::Orders> orders;  // Note [Unknown order]
  std::uint64_t above_run_bytes = 0;        // H - P
  std::string no_orders;                    // batches differ, but nothing can be said of other orders: why, a clause
  std::string no_times;                     // it is not known when libraries took memory: why, a clause
};

// `device` of the book. nullopt with a reason (a clause) where the record does not say enough; "" where nothing was allocated.
std::optional<DeviceMinimum> find_device_minimum(const Observation& observation, int device, std::string& why_not);

}  // namespace gpumem::estimate
