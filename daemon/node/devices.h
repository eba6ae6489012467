// SPDX-License-Identifier: Apache-2.0
// The node's GPUs: shared virtual ones in a book, or real ones as the driver lists them. Used by gpumemd.
//
// The shared virtual GPUs' book is made here and read as snapshots; it is never kept open. Loop thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "daemon/node/settings.h"
#include "estimator/book/book.h"

namespace gpumem::node {

// A GPU of this node by its index in Slurm's order (gres.conf; SLURM_JOB_GPUS).
struct Device {
  int index = 0;
  std::string gpu;    // model as NVML prints it
  std::string uuid;
  std::uint64_t usable_bytes = 0;  // 0: not known
  std::uint64_t context_bytes = 0; // of one process, from the model's profile; 0: not known
};

struct DeviceNow {
  std::uint64_t used_bytes = 0, peak_bytes = 0;
};

class Devices {
 public:
  // With virtual GPUs configured: makes books/node, or takes the one that is there when it describes the same GPUs. One
  // that describes others is replaced only when no living process uses it, else the error is `unavailable`.
  // Without: the driver's list in /proc/driver/nvidia/gpus, in PCI order; none is no error (the CUDA-less part of a cluster).
  static Result<std::unique_ptr<Devices>> open(const Settings& settings);
  Devices(const Devices&) = delete;
  Devices& operator=(const Devices&) = delete;

  bool are_virtual() const { return !book_path_.empty(); }
  const std::string& book_path() const { return book_path_; }  // empty: real GPUs
  const std::vector<Device>& all() const { return devices_; }
  const Device* find(int index) const;

  // Virtual GPUs only: what the device holds now, and what a job holds and was refused.
  Result<DeviceNow> use_of(int index) const;
  Result<book::JobUse> use_of_job(const std::string& job_key) const;
  // Takes back what dead processes held.
  void reclaim() const;

 private:
  Devices() = default;
  std::string book_path_;
  std::vector<Device> devices_;
};


}  // namespace gpumem::node
