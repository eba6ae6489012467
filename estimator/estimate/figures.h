// SPDX-License-Identifier: Apache-2.0
// The figures of an estimate: per process and per device. Part of estimate/ (see estimate.h).
#pragma once

#include "estimator/estimate/estimate.h"

namespace gpumem::estimate {

struct DeviceFigures {
  std::uint64_t peak_allocated_bytes = 0, peak_reserved_bytes = 0;  // PyTorch's allocators
  std::uint64_t minimum_limit_bytes = 0;  // outside contexts
  std::uint64_t context_bytes = 0;
  std::uint64_t need_bytes = 0;
};

// One for each device of the book.
std::vector<DeviceFigures> device_figures(const Observation& observation);
nlohmann::json process_list(const Observation& observation);

// The record of a process of the book; nullptr where its shim was lost.
const record::Process* record_of(const Observation& observation, pid_t pid);

// True if any process allocated device memory.
bool used_device_memory(const Observation& observation);

}  // namespace gpumem::estimate
