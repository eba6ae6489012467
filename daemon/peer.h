// SPDX-License-Identifier: Apache-2.0
// Who asks: the kernel's word (SO_PEERCRED), never the message's. Used by gpumemd.
#pragma once

#include <cstdint>
#include <string>

namespace gpumem {

struct Peer {
  std::uint32_t user_id = 0;
  std::uint32_t group_id = 0;
  std::int32_t pid = 0;
  std::string user;          // login name; the number as text where there is none
  bool is_operator = false;  // root, the daemon's own user, SlurmUser, and those of daemon.operators: sees all rows, sets margins
  bool is_privileged = false;  // root, SlurmUser or the daemon's own user: believed about jobs and tasks (job_start, task_end)
};

}  // namespace gpumem
