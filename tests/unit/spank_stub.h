// SPDX-License-Identifier: Apache-2.0
// Slurm as the plugin sees it, in a test program: the SPANK functions, slurm_option_* and `opt`. No Slurm is needed.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "spank/spank_api.h"

namespace spank_stub {

// Begins anew as `command` in `context`: no options, nothing printed.
void reset(const char* command, spank_context_t context);
spank_t handle();

std::map<std::string, std::string>& options();          // the request's options that are set
std::map<std::string, std::string>& job_control();      // spank_job_control_setenv
std::map<std::string, std::string>& job_environment();  // on the node
std::vector<std::string>& printed();                    // slurm_info and slurm_error

// As Slurm's parser does with an option of the plugin; what its callback returned.
int give_option(const std::string& name, const char* value);
void refuse_to_set(const std::string& option);

}  // namespace spank_stub

