// SPDX-License-Identifier: Apache-2.0
// The processes of a running program.
#include "estimator/probe/processes.h"

#include <dirent.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>

#include "base/file.h"

namespace gpumem::probe {
namespace {

std::string proc_path(pid_t pid, const char* name) { return "/proc/" + std::to_string(pid) + "/" + name; }

// "NAME:   123 kB" of a status-like text, in bytes.
std::uint64_t kib_field(const std::string& text, const char* name) {
  const std::size_t at = text.find(name);
  return at == std::string::npos ? 0 : std::strtoull(text.c_str() + at + std::strlen(name), nullptr, 10) * 1024;
}

pid_t parent_of(pid_t pid) {
  auto stat = read_file(proc_path(pid, "stat"), 1 << 16);
  if (!stat) return 0;
  // The name in parentheses may hold anything, parentheses too.
  const std::size_t end = stat->rfind(')');
  if (end == std::string::npos || end + 4 >= stat->size()) return 0;
  return static_cast<pid_t>(std::atoi(stat->c_str() + end + 4));
}

std::vector<pid_t> all_pids() {
  std::vector<pid_t> pids;
  DIR* listing = ::opendir("/proc");
  if (listing == nullptr) return pids;
  while (const dirent* entry = ::readdir(listing)) {
    const pid_t pid = std::atoi(entry->d_name);
    if (pid > 0 && pid != ::getpid()) pids.push_back(pid);
  }
  ::closedir(listing);
  return pids;
}

std::vector<pid_t> descendants_of(pid_t ancestor) {
  std::map<pid_t, pid_t> parents;
  for (const pid_t pid : all_pids()) parents[pid] = parent_of(pid);
  std::vector<pid_t> found;
  std::set<pid_t> known{ancestor};
  for (bool grown = true; grown;) {
    grown = false;
    for (const auto& [pid, parent] : parents) {
      if (known.count(parent) && known.insert(pid).second) {
        found.push_back(pid);
        grown = true;
      }
    }
  }
  return found;
}

void look_at_maps(pid_t pid, TorchProcess& process) {
  auto maps = read_file(proc_path(pid, "maps"));
  if (!maps) return;
  process.has_virtual_gpu = process.has_virtual_gpu || maps->find("/libgpumem_vgpu.so") != std::string::npos;
  // A process that ends while it is read shows a part only, by rising addresses: PyTorch's libraries, and not ours above them.
  if (!process.has_virtual_gpu && maps->find("[stack]") == std::string::npos) return;
  process.has_torch = process.has_torch || maps->find("/libtorch_cpu.so") != std::string::npos;
  process.has_cuda_build = process.has_cuda_build || maps->find("/libtorch_cuda.so") != std::string::npos;
}

}  // namespace

void ProcessWatch::look() {
  resident_.clear();
  for (const pid_t pid : all_ ? all_pids() : descendants_of(::getpid())) {
    auto status = read_file(proc_path(pid, "status"), 1 << 16);
    if (!status) continue;
    resident_[pid] = kib_field(*status, "RssAnon:") + kib_field(*status, "RssShmem:");
    TorchProcess& process = torch_[pid];
    // A child of fork() that has not called exec() yet carries its parent's libraries and name.
    if (process.has_cuda_build) continue;
    if (auto comm = read_file(proc_path(pid, "comm"), 4096)) {
      process.pid = pid;
      process.command = comm->substr(0, comm->find('\n'));
    }
    look_at_maps(pid, process);
  }
}

std::uint64_t ProcessWatch::resident_bytes(std::uint64_t limit_bytes) const {
  std::uint64_t sum = 0;
  for (const auto& [pid, bytes] : resident_) sum += bytes;
  if (limit_bytes == 0 || sum <= limit_bytes) return sum;
  std::uint64_t proportional = 0;
  for (const auto& [pid, bytes] : resident_) {
    auto rollup = read_file(proc_path(pid, "smaps_rollup"), 1 << 16);
    proportional += rollup ? kib_field(*rollup, "Pss_Anon:") + kib_field(*rollup, "Pss_Shmem:") : bytes;
  }
  return proportional;
}

std::vector<TorchProcess> ProcessWatch::torch_processes() const {
  std::vector<TorchProcess> found;
  for (const auto& [pid, process] : torch_) {
    if (process.has_torch) found.push_back(process);
  }
  return found;
}

std::vector<pid_t> ProcessWatch::pids() const {
  std::vector<pid_t> found;
  for (const auto& [pid, bytes] : resident_) found.push_back(pid);
  return found;
}

}  // namespace gpumem::probe
