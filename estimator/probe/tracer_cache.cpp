// SPDX-License-Identifier: Apache-2.0
// What gpumem-probe takes out of a sandbox.
#include "estimator/probe/tracer_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/size.h"
#include "estimator/probe/environment.h"

namespace gpumem::probe {
namespace {

constexpr std::size_t kLargestFile = 64 * kMiB;  // a tracer is about 2 MiB
constexpr int kMostFiles = 64;
constexpr int kDeepest = 4;

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

// The content of a regular file that nothing else can change under us any more: all writers are dead.
bool read_regular(const std::string& path, std::string* content, mode_t* mode) {
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0 || !S_ISREG(found.st_mode) || found.st_size > static_cast<off_t>(kLargestFile)) return false;
  auto text = read_file(path, kLargestFile);
  if (!text) return false;
  *content = std::move(*text);
  *mode = found.st_mode & 0755;
  return true;
}

void keep(const std::string& from, const std::string& to, int depth, int* files) {
  for (const auto& name : names_in(from)) {
    const std::string source = from + "/" + name, target = to + "/" + name;
    if (is_directory(source) && depth < kDeepest) {
      keep(source, target, depth + 1, files);
      continue;
    }
    std::string content;
    mode_t mode = 0644;
    if (*files >= kMostFiles || ::access(target.c_str(), F_OK) == 0 || !read_regular(source, &content, &mode)) continue;
    ++*files;
    if (make_directories(to, 0700)) (void)write_file_atomically(target, content, mode).ok();
  }
}

}  // namespace

void for_each_subdirectory(const std::string& path, const std::function<void(const std::string&)>& each) {
  for (const auto& name : names_in(path)) {
    if (is_directory(path + "/" + name)) each(path + "/" + name);
  }
}

void keep_compiled_tracers(const std::string& collected, const std::vector<std::string>& environment) {
  const Environment variables(environment);
  const std::string* cache = variables.get("XDG_CACHE_HOME");
  const std::string* home = variables.get("HOME");
  std::string target;
  if (cache != nullptr && !cache->empty() && (*cache)[0] == '/') target = *cache;
  else if (home != nullptr && !home->empty() && (*home)[0] == '/') target = *home + "/.cache";
  else return;
  int files = 0;
  keep(collected, target + "/gpumem/tracer", 0, &files);
}

}  // namespace gpumem::probe
