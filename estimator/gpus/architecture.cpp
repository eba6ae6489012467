// SPDX-License-Identifier: Apache-2.0
// The table of compute capabilities, and the assumed context.
#include "estimator/gpus/architecture.h"

namespace gpumem::gpus {
namespace {

// compute capability · threads, blocks per multiprocessor · shared memory per multiprocessor, per block at most, reserved per block
constexpr Architecture kArchitectures[] = {
    {"7.0", 2048, 32, 96 << 10, 96 << 10, 0},
    {"7.5", 1024, 16, 64 << 10, 64 << 10, 0},
    {"8.0", 2048, 32, 164 << 10, 163 << 10, 1024},
    {"8.6", 1536, 16, 100 << 10, 99 << 10, 1024},
    {"8.9", 1536, 24, 100 << 10, 99 << 10, 1024},
    {"9.0", 2048, 32, 228 << 10, 227 << 10, 1024},
    {"10.0", 2048, 32, 228 << 10, 227 << 10, 1024},
    {"10.3", 2048, 32, 228 << 10, 227 << 10, 1024},
    {"12.0", 1536, 24, 100 << 10, 99 << 10, 1024},
};

constexpr std::uint64_t kMib = 1 << 20;

}  // namespace

const char* const kAssumedContextReason =
    "upper bound: 3.2 MiB a multiprocessor of 1536 threads, in proportion to its threads, and 128 MiB for kernels and library handles "
    "that load lazily";

const Architecture* find_architecture(const std::string& compute_capability) {
  for (const auto& architecture : kArchitectures) {
    if (compute_capability == architecture.compute_capability) return &architecture;
  }
  return nullptr;
}

std::uint64_t assumed_context_bytes(std::uint64_t sm_count, std::uint64_t threads_per_sm) {
  const std::uint64_t tenths_of_mib = (sm_count * threads_per_sm * 32 + 1535) / 1536;
  return ((tenths_of_mib + 9) / 10 + 128) * kMib;
}

}  // namespace gpumem::gpus
