// SPDX-License-Identifier: Apache-2.0
// The figures of an estimate: per process and per device. Part of estimate/ (see estimate.h).
#pragma once

#include <optional>
#include <set>
#include <string>

#include "estimator/allocator/orders.h"
#include "estimator/estimate/estimate.h"

namespace gpumem::estimate {

struct DeviceFigures {
  std::uint64_t peak_allocated_bytes = 0, peak_reserved_bytes = 0;  // PyTorch's allocators
  std::uint64_t minimum_limit_bytes = 0;  // outside contexts; without a replay what the run took
  std::uint64_t minimum_need_bytes = 0;   // … and contexts: what a proof is to try
  std::uint64_t retries_at_minimum = 0;   // how often all cached memory would be given back for a request
  std::optional<std::uint64_t> peak_reserved_lagging_bytes;  // minimum.h, Note [Both clocks]
  std::optional<allocator::Orders> orders;  // minimum.h, Note [Unknown order]
  std::string no_orders;                  // why there are none although batches differ
  std::string no_times;                   // why it is not known when libraries took memory, where they took any
  std::string no_minimum;                 // why there was no replay; empty: there was one
  std::uint64_t context_bytes = 0;
  std::uint64_t need_bytes = 0;
};

// One for each device of the book.
std::vector<DeviceFigures> device_figures(const Observation& observation);

// How a process itself numbers a device of the book, judging by the numbers that its record mentions; -1: not known.
int ordinal_in_process(const Observation& observation, const book::ProcessUse& process, int device, const std::set<int>& recorded);

nlohmann::json process_list(const Observation& observation);

// Note [Contexts by generation]
// Before a program runs its PyTorch is not known: the virtual GPU charges the profile's largest context to each process, and what is refused
// is refused under that. Afterwards the context of the closest measured build counts in the figures (gpus/profile.h).
std::uint64_t context_of(const Observation& observation, const book::ProcessUse& process, int device);
// The largest of them: what a second run should charge.
std::uint64_t largest_context(const Observation& observation);

// The record of a process of the book; nullptr where its shim was lost.
const record::Process* record_of(const Observation& observation, pid_t pid);

// True if any process allocated device memory.
bool used_device_memory(const Observation& observation);

}  // namespace gpumem::estimate
