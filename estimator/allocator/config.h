// SPDX-License-Identifier: Apache-2.0
// The settings of PyTorch's caching allocator, as a version of PyTorch reads them. Used by gpumem-probe and tests.
//
// Source of keys, defaults and checks: c10/cuda/CUDAAllocatorConfig.{h,cpp} and c10/core/AllocatorConfig.{h,cpp} of
// PyTorch 2.1 to 2.15. A string that this PyTorch would refuse at the first CUDA call is an error that names the key.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace gpumem::allocator {

struct Version {
  int major = 0, minor = 0;
  auto operator<=>(const Version&) const = default;
};

// Of "2.6.0+cu124"; fails with invalid_argument where there are no two numbers.
Result<Version> parse_version(std::string_view text);

// What the allocator model knows rules of. Outside, the nearest one's rules are used, and is_known_version() says no.
inline constexpr Version kOldestVersion{2, 1}, kNewestVersion{2, 15};
inline bool is_known_version(Version version) { return version >= kOldestVersion && version <= kNewestVersion; }

inline constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

struct Config {
  Version version = kNewestVersion;
  std::uint64_t max_split_bytes = kNoLimit;                  // blocks from this size on are never split
  std::uint64_t max_non_split_rounding_bytes = 20u << 20;    // how much too large such a block may be for a request
  std::uint64_t large_segment_bytes = 20u << 20;             // segment for requests of 1 to 10 MiB
  double garbage_collection_threshold = 0;                   // share of the allowed memory; 0: off
  std::array<std::uint64_t, 16> roundup_power2_divisions{};  // by log2 of the size in MiB: 1 MiB … 32 GiB; 0: off
  bool expandable_segments = false;
  bool graph_capture_record_stream_reuse = false;
  bool cuda_malloc_async = false;                            // backend:cudaMallocAsync: not this allocator at all
  double memory_fraction = 1;                                // per_process_memory_fraction; 1: no limit of its own
};

// Reads PYTORCH_CUDA_ALLOC_CONF's language. Fails with invalid_argument and says what PyTorch `version` would refuse.
Result<Config> parse_config(std::string_view text, Version version);

// The settings in force, from the two environment variables (nullopt: not set) with that version's precedence.
Result<Config> config_from_environment(const std::optional<std::string>& cuda_alloc_conf, const std::optional<std::string>& alloc_conf,
                                       Version version);

}  // namespace gpumem::allocator
