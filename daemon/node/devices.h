// SPDX-License-Identifier: Apache-2.0
// The node's GPUs: shared virtual ones in a book, or real ones as the driver lists them. Used by gpumemd.
//
// Owns the book of the shared virtual GPUs, open for the daemon's whole life: a process must never open one book twice,
// and closing it would drop locks (estimator/book/book.h). Loop thread only.
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
  ~Devices();

  bool are_virtual() const { return !book_path_.empty(); }
  const std::string& book_path() const { return book_path_; }  // empty: real GPUs
  const std::vector<Device>& all() const { return devices_; }
  const Device* find(int index) const;

  // Virtual GPUs only: what the device holds now, and what a job holds and was refused on all devices together.
  Result<DeviceNow> use_of(int index);
  Result<book::JobUse> use_of_job(const std::string& job_key);
  // Takes back what dead processes held; returns how many there were.
  int reclaim();

 private:
  Devices() = default;
  std::string book_path_;
  book::Book book_;
  bool book_open_ = false;
  std::vector<Device> devices_;
};


}  // namespace gpumem::node
