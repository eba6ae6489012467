// SPDX-License-Identifier: Apache-2.0
// How much of this host's memory a probe may take, and whether the kernel ended a process for want of it. Used by gpumem-probe.
//
// Note [Memory groups]
// A login node gives each user's session a share of its memory: a limit of a control group, the process's own or one around it.
// /proc/meminfo knows nothing of it. What is left there is the limit less what the group uses, of which the kernel can take back
// the pages of files that nobody used lately. Both versions of control groups are read (memory.max, memory.limit_in_bytes);
// a host may have either, or both with memory in version 1. What cannot be read sets no limit. Units: bytes.
#pragma once

#include <cstdint>
#include <string>

namespace gpumem::probe {

struct HostMemory {
  std::uint64_t total_bytes = 0;      // of the host, or of the tightest group
  std::uint64_t available_bytes = 0;  // now, to this process
  std::uint64_t group_limit_bytes = 0;  // the tightest around this process that is below the host's memory; 0: none
  std::uint64_t kills = 0;            // processes that the kernel has ended for want of memory, on this host or in these groups, so far
};

// `root` stands before /proc and, in what /proc/self/mountinfo names, before each mount point: for tests.
HostMemory look_at_host_memory(const std::string& root = "");

}  // namespace gpumem::probe
