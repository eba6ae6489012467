// SPDX-License-Identifier: Apache-2.0
// The mounts of a process and how the sandbox must treat each directory. Used by gpumem-probe.
//
// Note [Locked mounts]. A user namespace may neither take apart nor overlay a directory with mounts below it that it
// inherited: the kernel keeps them together so that what they cover stays covered. So the view is built top down: a
// directory with mounts below it becomes a directory of our own whose entries are treated one by one; a directory
// without any becomes one overlay.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gpumem::probe {

struct Mount {
  int id = 0;
  std::string point;    // where it is mounted, with \040 and the like decoded
  std::string type;     // "ext4", "nfs4", "tmpfs", …
  bool read_only = false;
};

// The lines of /proc/PID/mountinfo; lines that make no sense are left out.
std::vector<Mount> parse_mountinfo(std::string_view text);

// Only mounts that a path reaches: one that a later mount covers cannot be seen and must not be treated.
std::vector<Mount> visible_mounts(const std::vector<Mount>& mounts);

// True for file systems that show the kernel rather than hold files (proc, sysfs, cgroup2, …): never in a view.
bool is_kernel_file_system(std::string_view type);

// True when `path` is `directory` or below it.
bool is_within(std::string_view path, std::string_view directory);

// The mount that `path` lies on: the longest mount point that it is within; nullptr when there is none.
const Mount* mount_of(const std::vector<Mount>& mounts, std::string_view path);

// True when there is a mount strictly below `directory`.
bool has_mounts_below(const std::vector<Mount>& mounts, std::string_view directory);

}  // namespace gpumem::probe
