// SPDX-License-Identifier: Apache-2.0
// What a GPU's compute capability fixes, and the context that is assumed where none was measured. Used with profiles.
//
// Sources. Limits per multiprocessor and block: CUDA C++ Programming Guide, "Technical Specifications per Compute
// Capability"; the same numbers stand in NVIDIA CCCL's arch_traits. Values are bytes and counts; 0 never means "unknown".
#pragma once

#include <cstdint>
#include <string>

namespace gpumem::gpus {

inline constexpr const char* kArchitectureSource = "CUDA C++ Programming Guide, technical specifications of the compute capability";

struct Architecture {
  const char* compute_capability;  // "8.6"
  std::uint32_t threads_per_sm, blocks_per_sm;
  std::uint32_t shared_per_sm, shared_per_block_optin, shared_reserved_per_block;
};

// What all supported compute capabilities have in common.
inline constexpr std::uint32_t kSharedPerBlock = 48 << 10;  // without opting in
inline constexpr std::uint32_t kRegistersPerBlock = 65536, kRegistersPerSm = 65536;  // of 32 bits
inline constexpr std::uint32_t kThreadsPerBlock = 1024, kWarpSize = 32;

// nullptr for a compute capability that the table lacks: a profile must then bring these values itself.
const Architecture* find_architecture(const std::string& compute_capability);

// Note [The assumed context]
// A CUDA context holds, above all, local memory for every thread that can be resident: it grows with the number of
// multiprocessors and their threads. Bare contexts reported for PyTorch 2.7 to 2.10 are 107 MiB with 34, 256 MiB with
// 82, 426 MiB with 142 and 555 MiB with 188 multiprocessors of 1536 threads: at most 3.2 MiB each. Kernels and library
// handles are loaded lazily on top; 128 MiB are allowed for them. An upper bound, rounded up to MiB.
std::uint64_t assumed_context_bytes(std::uint64_t sm_count, std::uint64_t threads_per_sm);
extern const char* const kAssumedContextReason;

}  // namespace gpumem::gpus
