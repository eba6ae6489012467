// SPDX-License-Identifier: Apache-2.0
// The minimum limit of a device. See minimum.h.
#include "estimator/estimate/minimum.h"

#include <algorithm>
#include <set>
#include <vector>

#include "estimator/allocator/outside.h"
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

// Note [Unknown order]. `minimum` is that of the order that was run, with what is outside.
void find_orders(const Observation& seen, int device, const std::vector<allocator::Participant>& participants, const allocator::MinimumLimit& minimum,
                 DeviceMinimum& found) {
  const record::Process* differing = nullptr;
  for (const auto& participant : participants) {
    const record::Process* process = record_of(seen, static_cast<pid_t>(participant.trace->process));
    if (process != nullptr && allocator::has_orders(*process)) differing = process;
  }
  if (differing == nullptr) return;
  if (participants.size() > 1 && !participants[1].trace->requests.empty()) {
    found.no_orders = "several processes use the device";
    return;
  }
  const std::uint64_t peak_bytes = seen.book.devices[static_cast<std::size_t>(device)].peak_bytes, run_peak_bytes = participants[0].trace->peak_reserved_bytes;
  const std::uint64_t others_bytes = peak_bytes - std::min(peak_bytes, run_peak_bytes);
  const std::uint64_t room_bytes = std::max(run_peak_bytes, seen.capacity_bytes - std::min(seen.capacity_bytes, others_bytes));
  std::uint64_t outside_bytes = 0;
  for (const auto& participant : participants) outside_bytes += allocator::peak_outside(participant.trace->outside);
  auto orders = allocator::replay_orders(participants[0], *differing, seen.gpu.total_bytes(), room_bytes,
                                         minimum.limit_bytes - std::min(minimum.limit_bytes, outside_bytes));
  if (!orders) {
    found.no_orders = orders.error().message;
    return;
  }
  const std::uint64_t run_bytes = minimum.peak_device_bytes;
  const std::uint64_t needed_bytes = std::max(orders->limit_bytes + outside_bytes, run_bytes - std::min(run_bytes, found.saved_bytes));
  const std::uint64_t highest_bytes = std::max({run_bytes, orders->highest_bytes + outside_bytes, needed_bytes});
  found.above_run_bytes = highest_bytes - run_bytes;
  found.saved_bytes = highest_bytes - needed_bytes;
  found.orders = std::move(*orders);
}

// Note [Minimum need]: when a process took memory past PyTorch's allocator, into its trace; or why that is not known, a clause.
std::string add_times(const Observation& seen, const book::ProcessUse& process, const record::EventFile& file, int device, allocator::Trace& trace) {
  const auto log = seen.record.memory.find(process.pid);
  if (log == seen.record.memory.end()) return "the record is of an earlier version";
  if (log->second.cut) return "it was not all written down";
  trace.outside = allocator::outside_of(log->second, file, device);
  return "";
}

// Libraries alone, in a process whose PyTorch allocated nothing. False: nothing is known of when.
bool add_outside_alone(const Observation& seen, const book::ProcessUse& process, int device, std::vector<allocator::Trace>& traces) {
  const auto log = seen.record.memory.find(process.pid);
  if (log == seen.record.memory.end() || log->second.cut) return false;
  std::set<int> numbers;
  for (const auto& change : log->second.changes) {
    if (change.kind != record::MemoryChange::Kind::mapped) numbers.insert(change.device);
  }
  allocator::Trace trace = allocator::trace_of_outside(log->second, ordinal_in_process(seen, process, device, numbers));
  trace.process = static_cast<std::uint64_t>(process.pid);
  if (allocator::peak_outside(trace.outside) != process.devices[device].allocated_peak_bytes) return false;
  traces.push_back(std::move(trace));
  return true;
}

}  // namespace

std::optional<DeviceMinimum> find_device_minimum(const Observation& seen, int device, std::string& why_not) {
  std::vector<allocator::Trace> traces, alone;  // of PyTorch's allocators; of libraries alone
  std::vector<allocator::Participant> participants;
  traces.reserve(seen.book.processes.size());
  const std::uint64_t total_bytes = seen.gpu.total_bytes();
  std::size_t requests = 0;
  std::string no_times;
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
      if (by_device.empty()) {
        if (!add_outside_alone(seen, process, device, alone)) no_times = "not of a process (" + std::string(process.comm) + ") without PyTorch's allocator";
        continue;
      }
      why_not = "a process numbers its devices otherwise";
      return std::nullopt;
    }
    if (const std::string why = add_times(seen, process, *file, trace->first, trace->second); !why.empty()) no_times = why;
    traces.push_back(std::move(trace->second));
    participants.push_back({&traces.back(), *config});
    requests += traces.back().requests.size();
    // The last events of a process that died are lost; its peaks are not.
    const auto peaks = recorded->devices.find(trace->first);
    const bool whole = peaks == recorded->devices.end() || peaks->second.reserved_bytes <= traces.back().peak_reserved_bytes;
    std::uint64_t replayed_bytes = 0;
    if (!whole || requests > kMostRequests || !allocator::reproduces(participants.back(), total_bytes, &replayed_bytes)) {
      why_not = requests > kMostRequests ? "it asked for memory too often" : "the allocator's model does not come to what was recorded";
      return std::nullopt;
    }
    if (no_times.empty() && replayed_bytes != use.allocated_peak_bytes) no_times = "what was written down does not come to the device's peak";
  }
  if (participants.empty()) return std::nullopt;
  for (const auto& trace : alone) participants.push_back({&trace, participants.front().config});
  if (!no_times.empty()) {
    for (auto& trace : traces) trace.outside.clear();
    std::erase_if(participants, [](const auto& participant) { return participant.trace->requests.empty(); });
    if (participants.empty()) return std::nullopt;
  }
  const auto minimum = allocator::find_minimum_limit(participants, total_bytes);
  if (!minimum) return std::nullopt;
  const std::uint64_t peak_bytes = minimum->peak_device_bytes;
  DeviceMinimum found;
  found.saved_bytes = peak_bytes - std::min(peak_bytes, minimum->limit_bytes);
  found.retries = minimum->retries;
  found.processes = participants.size();
  found.no_times = no_times;
  if (std::any_of(participants.begin(), participants.end(), [](const auto& p) { return allocator::crosses_streams(*p.trace); })) {
    allocator::ReplayOptions lagging;  // Note [Both clocks]
    lagging.total_bytes = total_bytes;
    lagging.lag_allocations = allocator::kLagAllocations;
    const std::uint64_t lagging_bytes = allocator::replay(participants, lagging).peak_device_bytes;
    found.lag_bytes = lagging_bytes - std::min(lagging_bytes, peak_bytes);
    while (found.saved_bytes > 0 && !allocator::passes_lagging(participants, total_bytes, peak_bytes - found.saved_bytes)) found.saved_bytes /= 2;
  }
  find_orders(seen, device, participants, *minimum, found);
  return found;
}

}  // namespace gpumem::estimate
