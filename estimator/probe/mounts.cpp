// SPDX-License-Identifier: Apache-2.0
// The mounts of a process.
#include "estimator/probe/mounts.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>

namespace gpumem::probe {
namespace {

std::string decode_octal(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_escape = text[i] == '\\' && i + 3 < text.size() && text[i + 1] >= '0' && text[i + 1] <= '3';
    if (!is_escape) {
      plain += text[i];
      continue;
    }
    plain += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
    i += 3;
  }
  return plain;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const std::size_t end = text.find(separator);
    if (end != 0) parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return parts;
}

bool has_option(std::string_view options, std::string_view wanted) {
  for (const auto option : split(options, ',')) {
    if (option == wanted) return true;
  }
  return false;
}

}  // namespace

std::vector<Mount> parse_mountinfo(std::string_view text) {
  std::vector<Mount> mounts;
  for (const auto line : split(text, '\n')) {
    // 36 35 98:0 /root /point rw,noatime master:1 - ext3 /dev/root rw (proc(5))
    const auto fields = split(line, ' ');
    const auto dash = std::find(fields.begin(), fields.end(), "-");
    if (fields.size() < 7 || dash == fields.end() || fields.end() - dash < 2) continue;
    Mount mount;
    mount.id = std::atoi(std::string(fields[0]).c_str());
    mount.point = decode_octal(fields[4]);
    mount.type = std::string(dash[1]);
    mount.read_only = has_option(fields[5], "ro") || (fields.end() - dash >= 4 && has_option(dash[3], "ro"));
    mounts.push_back(std::move(mount));
  }
  return mounts;
}

std::vector<Mount> visible_mounts(const std::vector<Mount>& mounts) {
  std::vector<Mount> visible;
  for (const auto& mount : mounts) {
    struct statx found {};
    // Where the path cannot be walked (a directory closed to this user) the mount counts as visible: that is the safe side.
    const bool walked = ::statx(AT_FDCWD, mount.point.c_str(), AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_MNT_ID, &found) == 0;
    if (walked && (found.stx_mask & STATX_MNT_ID) && static_cast<int>(found.stx_mnt_id) != mount.id) continue;
    visible.push_back(mount);
  }
  return visible;
}

bool is_kernel_file_system(std::string_view type) {
  static constexpr std::string_view kTypes[] = {
      "proc",   "sysfs",      "cgroup",  "cgroup2", "devtmpfs", "devpts",   "mqueue",      "debugfs",     "tracefs",  "securityfs",
      "pstore", "efivarfs",   "bpf",     "configfs", "fusectl",  "hugetlbfs", "binfmt_misc", "rpc_pipefs", "selinuxfs", "nsfs",
  };
  return std::find(std::begin(kTypes), std::end(kTypes), type) != std::end(kTypes);
}

bool is_within(std::string_view path, std::string_view directory) {
  if (directory == "/") return true;
  return path.starts_with(directory) && (path.size() == directory.size() || path[directory.size()] == '/');
}

const Mount* mount_of(const std::vector<Mount>& mounts, std::string_view path) {
  const Mount* best = nullptr;
  for (const auto& mount : mounts) {
    if (is_within(path, mount.point) && (best == nullptr || mount.point.size() >= best->point.size())) best = &mount;
  }
  return best;
}

bool has_mounts_below(const std::vector<Mount>& mounts, std::string_view directory) {
  return std::any_of(mounts.begin(), mounts.end(), [&](const Mount& mount) {
    return mount.point != directory && is_within(mount.point, directory);
  });
}

}  // namespace gpumem::probe
