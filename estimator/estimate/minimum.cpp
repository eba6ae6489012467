// SPDX-License-Identifier: Apache-2.0
// The minimum limit of a device. See minimum.h.
#include "estimator/estimate/minimum.h"

#include <algorithm>
#include <map>
#include <vector>

#include "estimator/allocator/replay.h"
#include "estimator/estimate/figures.h"

namespace gpumem::estimate {
namespace {

// A bisection replays this about ten times; more would take seconds of a submission's time.
constexpr std::size_t kMostRequests = 8u << 20;

const record::EventFile* events_of(const Observation& seen, pid_t pid) {
  for (const auto& file : seen.events) {
    if (file.process == static_cast<std::uint64_t>(pid)) return &file;
  }
  return nullptr;
}

}  // namespace

std::optional<DeviceMinimum> find_device_minimum(const Observation& seen, int device, std::string& why_not) {
  std::vector<allocator::Trace> traces;
  std::vector<allocator::Participant> participants;
  traces.reserve(seen.book.processes.size());
  const std::uint64_t total_bytes = seen.gpu.total_bytes();
  std::size_t requests = 0;
  for (const auto& process : seen.book.processes) {
    const auto& use = process.devices[device];
    if (use.allocated_peak_bytes == 0) continue;
    if (use.out_of_memory_count > 0) {
      why_not = "the device was full";
      return std::nullopt;
    }
    const record::Process* recorded = record_of(seen, process.pid);
    const record::EventFile* file = events_of(seen, process.pid);
    if (recorded == nullptr || file == nullptr) {
      why_not = "what a process (" + std::string(process.comm) + ") asked PyTorch's allocator for was not recorded";
      return std::nullopt;
    }
    const auto config = allocator::config_of(*recorded);
    if (!config) {
      why_not = config.error().message;
      return std::nullopt;
    }
    auto by_device = allocator::traces_of(*file);
    std::set<int> numbers;
    for (const auto& [number, trace] : by_device) numbers.insert(number);
    const auto trace = by_device.find(ordinal_in_process(seen, process, device, numbers));
    if (trace == by_device.end()) {
      if (use.allocated_peak_bytes > 0 && by_device.empty()) continue;  // libraries alone
      why_not = "a process numbers its devices otherwise";
      return std::nullopt;
    }
    traces.push_back(std::move(trace->second));
    participants.push_back({&traces.back(), *config});
    requests += traces.back().requests.size();
    // The last events of a process that died are lost; its peaks are not.
    const auto peaks = recorded->devices.find(trace->first);
    const bool whole = peaks == recorded->devices.end() || peaks->second.reserved_bytes <= traces.back().peak_reserved_bytes;
    if (!whole || requests > kMostRequests || !allocator::reproduces(participants.back(), total_bytes)) {
      why_not = requests > kMostRequests ? "it asked for memory too often" : "the allocator's model does not come to what was recorded";
      return std::nullopt;
    }
  }
  if (participants.empty()) return std::nullopt;
  const auto minimum = allocator::find_minimum_limit(participants, total_bytes);
  if (!minimum) return std::nullopt;
  const std::uint64_t peak_bytes = minimum->peak_device_bytes;
  DeviceMinimum found{peak_bytes - std::min(peak_bytes, minimum->limit_bytes), minimum->retries, participants.size(), std::nullopt};
  if (std::any_of(participants.begin(), participants.end(), [](const auto& p) { return allocator::crosses_streams(*p.trace); })) {
    allocator::ReplayOptions lagging;  // Note [Both clocks]
    lagging.total_bytes = total_bytes;
    lagging.lag_allocations = allocator::kLagAllocations;
    const std::uint64_t lagging_bytes = allocator::replay(participants, lagging).peak_device_bytes;
    found.lag_bytes = lagging_bytes - std::min(lagging_bytes, peak_bytes);
    while (found.saved_bytes > 0 && !allocator::passes_lagging(participants, total_bytes, peak_bytes - found.saved_bytes)) found.saved_bytes /= 2;
  }
  return found;
}

}  // namespace gpumem::estimate
