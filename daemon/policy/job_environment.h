// SPDX-License-Identifier: Apache-2.0
// What a probe shows the script, and how one submission is told from another. Pure functions, used by gpumemd.
//
// The environment and the script are the submitter's data: sorted, compared and handed on, never interpreted.
#pragma once

#include <string>
#include <vector>

#include "daemon/policy/request.h"

namespace gpumem::policy {

// The environment that the job's script would find: --export applied, Slurm's variables of a one-node, one-GPU job added.
// Array jobs look like their first task.
std::vector<std::string> job_environment(const Request& request, const std::string& user, const std::string& host);

// 32 hex digits for everything of the submission that can change what the program does: script, arguments, working
// directory, environment (without what differs from login to login), the GPU model and the memory it has, gpumem's version.
// FNV-1a with 128 bits: answers are looked up within one user only, so nobody but that user could gain by a collision.
std::string fingerprint(const Request& request, const std::string& gpu, std::uint64_t capacity_bytes);

// The same without arguments and environment: jobs that are of one family.
std::string family(const Request& request, const std::string& gpu);

}  // namespace gpumem::policy
