// SPDX-License-Identifier: Apache-2.0
// PyTorch's side of the comparison: its allocator's events as it says them, and CUDA events that happen when we say so. Compiled by
// tests/conformance/run for one PyTorch.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/version.h>

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "estimator/allocator/allocator.h"

// What libtorch_cuda does at its start, in versions where libc10_cuda asks it; no header has it.
namespace c10::cuda::_internal {
__attribute__((weak)) void setHasPrimaryContext(bool (*)(DeviceIndex));
}
namespace c10::cuda::detail {
__attribute__((weak)) void init_p2p_access_cache(int64_t);
}

#define TORCH_AT_LEAST(minor) (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= (minor))

namespace conformance {

namespace real = c10::cuda::CUDACachingAllocator;
namespace model = gpumem::allocator;

constexpr uint64_t kMiB = 1u << 20;

// Events happen when we say so, for both: n-th event of a stream, and how many of them have happened.
struct StreamClock {
  uint64_t recorded = 0, happened = 0;
};
extern std::unordered_map<uint64_t, StreamClock> real_clocks, model_clocks;

extern std::vector<model::Event> real_events_seen;
extern std::unordered_map<uint64_t, uint64_t> pool_numbers;  // of MempoolId_t's second: ours

// A pool in use was as good as a capture under way; since 2.12 only captures are.
constexpr bool kPoolsCountAsCaptures = !TORCH_AT_LEAST(12);

// PyTorch before 2.2 tells nobody as it happens; its history is read after some requests.
constexpr bool kTracker = TORCH_AT_LEAST(3);
void start_listening();
void collect();

}  // namespace conformance
