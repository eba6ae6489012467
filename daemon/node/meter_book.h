// SPDX-License-Identifier: Apache-2.0
// A job's meter book: made when the job starts, read when it ends. Used by gpumemd on the node.
//
// One file a run of a job, STATE/jobs/KEY, owned by the job's user with mode 0600, in a directory that nobody can list.
// Its devices are the job's own, in the order of CUDA_VISIBLE_DEVICES. The daemon reads snapshots of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "daemon/node/devices.h"

namespace gpumem::node {

// What a meter book says of its job: the device with the largest peak.
struct Metered {
  int processes = 0;                // that ever took device memory or a context through the meter
  std::uint64_t used_bytes = 0;     // now
  std::uint64_t peak_bytes = 0;     // contexts included
  std::uint64_t context_bytes = 0;  // of the processes that live now, at least of the largest one there was
  std::uint64_t out_of_memory_count = 0, out_of_memory_bytes = 0;
};

// Makes the book if there is none (a file that is no book is replaced), and sees to its limit (0: none) on each device.
Status prepare_meter_book(const std::string& path, const std::vector<Device>& devices, const std::string& job_key,
                          std::uint64_t limit_bytes, std::uint32_t user_id);

Result<Metered> read_meter_book(const std::string& path, const std::string& job_key);

}  // namespace gpumem::node
