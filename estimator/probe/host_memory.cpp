// SPDX-License-Identifier: Apache-2.0
// The host's memory. See host_memory.h.
#include "estimator/probe/host_memory.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <vector>

#include "base/file.h"
#include "base/size.h"

namespace gpumem::probe {
namespace {

// The number after a word at the beginning of a line ("MemTotal:", "oom_kill"), 0 where there is none.
std::uint64_t field(const std::string& path, const std::string& name) {
  const auto text = read_file(path);
  if (!text) return 0;
  for (std::size_t at = 0; at < text->size(); at = text->find('\n', at) + 1) {
    if (text->compare(at, name.size(), name) == 0 && (*text)[at + name.size()] <= ' ') return std::strtoull(text->c_str() + at + name.size(), nullptr, 10);
    if (text->find('\n', at) == std::string::npos) break;
  }
  return 0;
}

// A file with one number; "max" and what is larger than any memory: 0, no limit.
std::uint64_t number(const std::string& path) {
  const auto text = read_file(path);
  if (!text || text->empty() || text->front() < '0' || text->front() > '9') return 0;
  const std::uint64_t value = std::strtoull(text->c_str(), nullptr, 10);
  return value < (std::uint64_t{1} << 60) ? value : 0;
}

struct Groups {
  bool second = false;   // version 2
  std::string mount;     // where its tree is
  std::string top;       // the group that the mount shows as its top
  std::string own;       // this process's
};

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// Of both versions, those with memory.
std::vector<Groups> find_groups(const std::string& root) {
  std::string first_group, second_group;
  bool has_first = false, has_second = false;
  std::istringstream own(read_file(root + "/proc/self/cgroup").ok() ? *read_file(root + "/proc/self/cgroup") : "");
  for (std::string line; std::getline(own, line);) {
    const std::size_t colon = line.find(':'), second = line.find(':', colon + 1);
    if (colon == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(colon + 1, second - colon - 1) + ",";
    if (controllers == ",,") has_second = true, second_group = line.substr(second + 1);
    if (controllers.find(",memory,") != std::string::npos) has_first = true, first_group = line.substr(second + 1);
  }
  std::vector<Groups> found;
  std::istringstream mounts(read_file(root + "/proc/self/mountinfo").ok() ? *read_file(root + "/proc/self/mountinfo") : "");
  for (std::string line; std::getline(mounts, line);) {
    const std::size_t dash = line.find(" - ");
    const auto front = words_of(line.substr(0, dash)), back = dash == std::string::npos ? std::vector<std::string>{} : words_of(line.substr(dash + 3));
    if (front.size() < 5 || back.size() < 3) continue;
    if (back[0] == "cgroup2" && has_second) found.push_back({true, root + front[4], front[3], second_group});
    if (back[0] == "cgroup" && has_first && ("," + back[2] + ",").find(",memory,") != std::string::npos)
      found.push_back({false, root + front[4], front[3], first_group});
  }
  return found;
}

void look_at_group(const std::string& path, bool second, HostMemory& memory) {
  const std::uint64_t limit = number(path + (second ? "/memory.max" : "/memory.limit_in_bytes"));
  memory.kills += field(path + (second ? "/memory.events" : "/memory.oom_control"), "oom_kill");
  if (limit == 0 || limit >= memory.total_bytes) return;
  const std::uint64_t used = number(path + (second ? "/memory.current" : "/memory.usage_in_bytes"));
  const std::uint64_t idle = field(path + "/memory.stat", second ? "inactive_file" : "total_inactive_file");
  const std::uint64_t left = limit - std::min(limit, used - std::min(used, idle));
  memory.available_bytes = std::min(memory.available_bytes, left);
  memory.group_limit_bytes = memory.group_limit_bytes == 0 ? limit : std::min(memory.group_limit_bytes, limit);
}

}  // namespace

HostMemory look_at_host_memory(const std::string& root) {
  HostMemory memory;
  memory.total_bytes = field(root + "/proc/meminfo", "MemTotal:") * kKiB;
  memory.available_bytes = field(root + "/proc/meminfo", "MemAvailable:") * kKiB;
  memory.kills = field(root + "/proc/vmstat", "oom_kill");
  for (const auto& groups : find_groups(root)) {
    // A mount may show a part of the tree: then the group's name begins with that part's.
    std::string group = groups.own;
    if (groups.top != "/" && group.compare(0, groups.top.size(), groups.top) == 0) group.erase(0, groups.top.size());
    for (;; group.erase(group.rfind('/'))) {
      while (!group.empty() && group.back() == '/') group.pop_back();
      look_at_group(groups.mount + group, groups.second, memory);
      if (group.empty()) break;
    }
  }
  if (memory.group_limit_bytes > 0) memory.total_bytes = std::min(memory.total_bytes, memory.group_limit_bytes);
  return memory;
}

}  // namespace gpumem::probe
