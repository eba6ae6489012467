// SPDX-License-Identifier: Apache-2.0
// The parts of the sandbox's view that are made new: /proc, /sys, /dev, /run, /etc/hosts, and programs with a stand-in.
// Used by gpumem-probe's init process while it builds the view (view.h).
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "estimator/probe/view.h"

namespace gpumem::probe {

// Makes the mounts at and below `path` read-only. False with errno where the kernel refuses.
bool set_read_only(const std::string& path);

// Makes /proc, /sys, /dev, /run and /etc/hosts below `root`; what can be written there lies in `space`, the private tmpfs.
Status make_special_directories(const ViewPlan& plan, const std::string& space, const std::string& root,
                                std::vector<std::string>& notes);

// Binds each stand-in over the program that it replaces, so that a script that puts its own directories first in PATH
// finds it all the same. One that cannot be bound is left: the program then fails, for it reaches no daemon.
void bind_stand_ins(const ViewPlan& plan, const std::string& root);

}  // namespace gpumem::probe
