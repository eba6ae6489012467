// SPDX-License-Identifier: Apache-2.0
// What the admin wrote behind the plugin in plugstack.conf, and whether the user has opted out for good.
//
//   optional /usr/lib/slurm/spank_gpumem.so socket=/run/gpumem/gpumemd.sock timeout=60
//
// The socket is never taken from the environment: slurmstepd asks it as root. Read once by the process's only thread.
#pragma once

namespace gpumem::spank {

struct Settings {
  char socket[108];          // sockaddr_un's largest path
  double timeout_s;          // a submission waits at most this long for its decision
};

// Unknown or malformed arguments are logged and left out: a typing error must not stop a cluster.
void settings_read(int ac, char** av);
const Settings& settings();

// GPUMEM=off in the environment, or a file ~/.config/gpumem/off (under XDG_CONFIG_HOME if set).
bool user_opted_out();

}  // namespace gpumem::spank
