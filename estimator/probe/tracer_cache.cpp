// SPDX-License-Identifier: Apache-2.0
// Compiled tracers on their way into the sandbox and out of it.
#include "estimator/probe/tracer_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/file.h"
#include "base/paths.h"
#include "base/size.h"
#include "estimator/probe/environment.h"

namespace gpumem::probe {
namespace {

constexpr std::size_t kLargestFile = 64 * kMiB;  // a tracer is about 200 KiB
// One for each PyTorch that somebody uses; those of PyTorches and gpumems of the past are dropped.
constexpr std::size_t kMostFiles = 32;

std::vector<std::string> names_in(const std::string& path) {
  std::vector<std::string> names;
  DIR* listing = ::opendir(path.c_str());
  if (listing == nullptr) return names;
  while (const dirent* entry = ::readdir(listing)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  ::closedir(listing);
  return names;
}

bool is_directory(const std::string& path) {
  struct stat found {};
  return ::lstat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
}

bool is_tracer(const std::string& name) { return name.size() > 3 && name.ends_with(".so") && name[0] != '.'; }

// Owned by `owner` and writable by nobody else.
bool belongs_to(const std::string& path, uid_t owner, bool directory) {
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0 || found.st_uid != owner || (found.st_mode & 022)) return false;
  return directory ? S_ISDIR(found.st_mode) : S_ISREG(found.st_mode) && found.st_size <= static_cast<off_t>(kLargestFile);
}

// The names of `owner`'s tracers in a directory, the newest first.
std::vector<std::string> tracers_in(const std::string& path, uid_t owner) {
  std::vector<std::pair<std::int64_t, std::string>> found;
  if (!belongs_to(path, owner, true)) return {};
  for (const auto& name : names_in(path)) {
    struct stat file {};
    if (!is_tracer(name) || !belongs_to(path + "/" + name, owner, false) || ::lstat((path + "/" + name).c_str(), &file) != 0) continue;
    found.emplace_back(-(file.st_mtim.tv_sec * std::int64_t{1'000'000'000} + file.st_mtim.tv_nsec), name);
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> names;
  for (auto& [age, name] : found) names.push_back(std::move(name));
  return names;
}

// Copies the newest tracers in `from`, all of which must be `owner`'s, to `to`; those that are there stay.
void copy_tracers(const std::string& from, const std::string& to, uid_t owner) {
  std::size_t missing = 0;
  for (const auto& name : tracers_in(from, owner)) {
    const std::string target = to + "/" + name;
    if (::access(target.c_str(), F_OK) == 0) continue;
    if (++missing > kMostFiles) break;
    if (auto content = read_file(from + "/" + name, kLargestFile)) (void)write_file_atomically(target, *content, 0644);
  }
}

}  // namespace

void for_each_subdirectory(const std::string& path, const std::function<void(const std::string&)>& each) {
  for (const auto& name : names_in(path)) {
    if (is_directory(path + "/" + name)) each(path + "/" + name);
  }
}

void lend_compiled_tracers(const std::string& directory, const std::vector<std::string>& environment) {
  copy_tracers(paths::shared_cache_directory() + "/tracer", directory, 0);
  if (const std::string cache = user_cache_directory(environment, "tracer"); !cache.empty()) copy_tracers(cache, directory, ::geteuid());
}

void keep_compiled_tracers(const std::string& directory, const std::vector<std::string>& environment) {
  const std::string cache = user_cache_directory(environment, "tracer"), shared = paths::shared_cache_directory() + "/tracer";
  if (cache.empty()) return;
  bool any = false;
  for (const auto& name : names_in(directory)) {
    // What came from root's cache stays there.
    if (is_tracer(name) && ::access((shared + "/" + name).c_str(), F_OK) == 0) ::unlink((directory + "/" + name).c_str());
    else any = any || is_tracer(name);
  }
  if (!any || !make_directories(cache, 0700)) return;
  copy_tracers(directory, cache, ::geteuid());
  // What is not lent any more must go: where it is, a tracer that was compiled once more would not be kept.
  const auto kept = tracers_in(cache, ::geteuid());
  for (std::size_t i = kMostFiles; i < kept.size(); ++i) ::unlink((cache + "/" + kept[i]).c_str());
}

}  // namespace gpumem::probe
