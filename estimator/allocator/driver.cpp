// SPDX-License-Identifier: Apache-2.0
// The virtual GPU's answers to the caching allocator.
#include "estimator/allocator/driver.h"

#include <algorithm>

namespace gpumem::allocator {

bool VirtualGpu::charge(std::uint64_t bytes) {
  if (bytes > capacity_ || used_ > capacity_ - bytes) return false;
  used_ += bytes;
  peak_ = std::max(peak_, used_);
  return true;
}

std::uint64_t VirtualGpu::allocate(std::uint64_t bytes) {
  if (bytes > kNoLimit / 2 || !charge(in_whole_granules(bytes))) return 0;
  return next_address_ -= in_whole_granules(bytes);
}

void VirtualGpu::release(std::uint64_t, std::uint64_t bytes) { used_ -= in_whole_granules(bytes); }

std::uint64_t VirtualGpu::reserve(std::uint64_t bytes) { return next_address_ -= in_whole_granules(bytes); }

void VirtualGpu::unreserve(std::uint64_t, std::uint64_t) {}

bool VirtualGpu::create_physical(std::uint64_t bytes) { return charge(bytes); }

void VirtualGpu::release_physical(std::uint64_t bytes) { used_ -= bytes; }

}  // namespace gpumem::allocator
