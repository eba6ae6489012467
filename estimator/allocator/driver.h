// SPDX-License-Identifier: Apache-2.0
// What the caching allocator asks of the device, as a small interface: another GPU, real or virtual, can be plugged in.
// Used by gpumem-probe and tests. Not thread-safe. Sizes in bytes.
#pragma once

#include <cstdint>

#include "estimator/allocator/config.h"

namespace gpumem::allocator {

// A device gives out whole granules.
inline constexpr std::uint64_t kGranularity = 2u << 20;
constexpr std::uint64_t granules(std::uint64_t bytes) { return (bytes + kGranularity - 1) / kGranularity; }
constexpr std::uint64_t in_whole_granules(std::uint64_t bytes) { return granules(bytes) * kGranularity; }

class Driver {
 public:
  virtual ~Driver() = default;

  // cudaMalloc and cudaFree. 0: out of memory.
  virtual std::uint64_t allocate(std::uint64_t bytes) = 0;
  virtual void release(std::uint64_t address, std::uint64_t bytes) = 0;

  // cuMemAddressReserve and cuMemAddressFree; cuMemCreate (false: out of memory) and cuMemRelease of one piece.
  virtual std::uint64_t reserve(std::uint64_t bytes) = 0;
  virtual void unreserve(std::uint64_t address, std::uint64_t bytes) = 0;
  virtual bool create_physical(std::uint64_t bytes) = 0;
  virtual void release_physical(std::uint64_t bytes) = 0;

  virtual std::uint64_t total_bytes() const = 0;  // of the device: cudaDeviceProp::totalGlobalMem
  virtual std::uint64_t free_bytes() const = 0;   // what cudaMemGetInfo says

  // cudaEventRecord on a stream, and whether that event has happened. By default every event has.
  virtual std::uint64_t record_event(std::uint64_t /*stream*/) { return 0; }
  virtual bool event_happened(std::uint64_t /*event*/) { return true; }
};

// The virtual GPU's answers (estimator/virtual_gpu/device, Note [Order of addresses]): whole granules of 2 MiB, addresses
// from the top down, none twice. `capacity_bytes` is what allocations can take: the device's usable memory less the
// contexts. Several allocators (processes) may share one.
class VirtualGpu : public Driver {
 public:
  explicit VirtualGpu(std::uint64_t capacity_bytes = kNoLimit, std::uint64_t total_bytes = std::uint64_t{16} << 30)
      : capacity_(capacity_bytes), total_(total_bytes) {}

  std::uint64_t allocate(std::uint64_t bytes) override;
  void release(std::uint64_t address, std::uint64_t bytes) override;
  std::uint64_t reserve(std::uint64_t bytes) override;
  void unreserve(std::uint64_t address, std::uint64_t bytes) override;
  bool create_physical(std::uint64_t bytes) override;
  void release_physical(std::uint64_t bytes) override;
  std::uint64_t total_bytes() const override { return total_; }
  std::uint64_t free_bytes() const override { return used_ < capacity_ ? capacity_ - used_ : 0; }

  void set_next_address(std::uint64_t above) { next_address_ = above; }  // the next is below it
  void release_all(std::uint64_t bytes) { used_ -= bytes < used_ ? bytes : used_; }  // a process has ended

  std::uint64_t used_bytes() const { return used_; }
  std::uint64_t peak_bytes() const { return peak_; }

 private:
  bool charge(std::uint64_t bytes);
  std::uint64_t capacity_, total_;
  std::uint64_t used_ = 0, peak_ = 0;
  std::uint64_t next_address_ = 0x7e0000000000;
};

}  // namespace gpumem::allocator
