// SPDX-License-Identifier: Apache-2.0
// Amounts of memory as people write and read them. Used by every program.
//
// Units are binary, as GPUs and Slurm count: 1 GiB = 1024 MiB. "24G", "24GB", "24GiB" and "24g" are the same amount.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace gpumem {

inline constexpr std::uint64_t kKiB = 1024;
inline constexpr std::uint64_t kMiB = 1024 * kKiB;
inline constexpr std::uint64_t kGiB = 1024 * kMiB;

// "24G", "512M", "1.5GiB", "6291456K", "1T" to bytes. A bare number is MiB, as in Slurm's --mem.
// Fails with invalid_argument for anything else: empty, negative, zero, not a number, more than 2^53 bytes.
Result<std::uint64_t> parse_size(std::string_view text);

// "5.2 GiB", "310 MiB", "0 B": at most four significant characters before the unit.
std::string format_size(std::uint64_t bytes);

// Rounded up to whole MiB: what Slurm's shards count.
constexpr std::uint64_t to_mib_ceil(std::uint64_t bytes) { return (bytes + kMiB - 1) / kMiB; }

}  // namespace gpumem
