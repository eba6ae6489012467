// SPDX-License-Identifier: Apache-2.0
// The processes of a running program, as /proc shows them. Used by gpumem-probe's init process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace gpumem::probe {

// A process that was seen with PyTorch's libraries mapped.
struct TorchProcess {
  pid_t pid = 0;
  std::string command;         // its name as in /proc/PID/comm
  bool has_torch = false;      // libtorch_cpu is mapped
  bool has_cuda_build = false; // libtorch_cuda is mapped
  bool has_virtual_gpu = false;
};

// Looks at the processes below one ancestor again and again: cheap enough for four times a second.
// Not thread-safe; reads /proc only.
class ProcessWatch {
 public:
  // `all` processes of /proc (a pid namespace of one's own), or only descendants of the caller.
  explicit ProcessWatch(bool all) : all_(all) {}

  void look();

  // Resident memory of all of them at the last look, in bytes: anonymous and shared pages, counted once where the sum
  // would exceed `limit_bytes` (0: the plain sum). Pages shared by fork are counted in each process by the plain sum.
  std::uint64_t resident_bytes(std::uint64_t limit_bytes) const;
  std::vector<TorchProcess> torch_processes() const;
  std::vector<pid_t> pids() const;  // at the last look, without the caller

 private:
  bool all_;
  std::map<pid_t, std::uint64_t> resident_;  // pid: bytes
  std::map<pid_t, TorchProcess> torch_;
};

}  // namespace gpumem::probe
