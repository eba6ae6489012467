// SPDX-License-Identifier: Apache-2.0
// The figures of an estimate.
#include "estimator/estimate/figures.h"

#include <algorithm>

#include "estimator/estimate/minimum.h"

namespace gpumem::estimate {
namespace {

bool touched(const book::ProcessUse::Device& device) { return device.allocated_peak_bytes > 0 || device.context_peak_bytes > 0; }

// PyTorch's own figures of a process on a device of the book.
record::DevicePeaks torch_peaks(const Observation& observation, const book::ProcessUse& process, int device) {
  record::DevicePeaks peaks;
  if (const record::Process* recorded = record_of(observation, process.pid)) {
    std::set<int> numbers;
    for (const auto& [number, figures] : recorded->devices) numbers.insert(number);
    const auto found = recorded->devices.find(ordinal_in_process(observation, process, device, numbers));
    if (found != recorded->devices.end()) peaks = found->second;
  }
  // What came from the device can never have been more than what the book saw, and is all that is known where the
  // shim could not speak (a killed process).
  const std::uint64_t booked = process.devices[device].allocated_peak_bytes;
  if (peaks.reserved_bytes == 0 || peaks.reserved_bytes > booked) peaks.reserved_bytes = booked;
  if (peaks.allocated_bytes == 0 || peaks.allocated_is_older || peaks.allocated_bytes > peaks.reserved_bytes) peaks.allocated_bytes = peaks.reserved_bytes;
  return peaks;
}

}  // namespace

// The process numbers what it can see; where it saw only some, its n-th device is the n-th that it used.
int ordinal_in_process(const Observation& observation, const book::ProcessUse& process, int device, const std::set<int>& recorded) {
  std::vector<int> used;
  for (int i = 0; i < static_cast<int>(observation.book.devices.size()); ++i) {
    if (touched(process.devices[i])) used.push_back(i);
  }
  const bool same_numbers = std::all_of(recorded.begin(), recorded.end(), [&](int n) { return std::find(used.begin(), used.end(), n) != used.end(); });
  if (same_numbers) return recorded.count(device) > 0 ? device : -1;
  if (recorded.size() != used.size()) return -1;
  auto number = recorded.begin();
  for (const int i : used) {
    if (i == device) return *number;
    ++number;
  }
  return -1;
}

const record::Process* record_of(const Observation& observation, pid_t pid) {
  for (const auto& process : observation.record.processes) {
    if (process.pid == pid && pid != 0) return &process;
  }
  return nullptr;
}

std::uint64_t context_of(const Observation& observation, const book::ProcessUse& process, int device) {
  const std::uint64_t charged_bytes = process.devices[device].context_peak_bytes;
  const record::Process* recorded = record_of(observation, process.pid);
  if (recorded == nullptr || charged_bytes != observation.gpu.context_bytes()) return charged_bytes;
  const gpus::Context* closest = observation.gpu.closest_context(recorded->torch, recorded->cuda);
  return closest != nullptr ? std::min(charged_bytes, closest->warm_bytes) : charged_bytes;
}

std::uint64_t largest_context(const Observation& observation) {
  std::uint64_t largest_bytes = 0;
  for (const auto& process : observation.book.processes) {
    for (int i = 0; i < static_cast<int>(observation.book.devices.size()); ++i)
      largest_bytes = std::max(largest_bytes, context_of(observation, process, i));
  }
  return largest_bytes;
}

bool used_device_memory(const Observation& observation) {
  for (const auto& process : observation.book.processes) {
    for (const auto& device : process.devices) {
      if (device.allocated_peak_bytes > 0) return true;
    }
  }
  return false;
}

std::vector<DeviceFigures> device_figures(const Observation& observation) {
  std::vector<DeviceFigures> all;
  for (int i = 0; i < static_cast<int>(observation.book.devices.size()); ++i) {
    DeviceFigures figures;
    std::uint64_t largest = 0, largest_context = 0, all_contexts = 0, largest_excess = 0, all_excess = 0;
    record::DevicePeaks largest_peaks, sum;
    for (const auto& process : observation.book.processes) {
      const auto& device = process.devices[i];
      if (!touched(device)) continue;
      const std::uint64_t total = device.allocated_peak_bytes + device.context_peak_bytes;
      const record::DevicePeaks peaks = torch_peaks(observation, process, i);
      const std::uint64_t context_bytes = context_of(observation, process, i), excess_bytes = device.context_peak_bytes - context_bytes;
      all_contexts += context_bytes;
      all_excess += excess_bytes;
      sum.allocated_bytes += peaks.allocated_bytes;
      sum.reserved_bytes += peaks.reserved_bytes;
      if (total > largest) {
        largest = total;
        largest_context = context_bytes;
        largest_excess = excess_bytes;
        largest_peaks = peaks;
      }
    }
    // Note [Need]
    figures.need_bytes = observation.book.devices[i].peak_bytes;
    const bool one_at_a_time = figures.need_bytes <= largest;
    figures.need_bytes -= std::min(figures.need_bytes, one_at_a_time ? largest_excess : all_excess);
    figures.context_bytes = std::min(figures.need_bytes, one_at_a_time ? largest_context : all_contexts);
    const std::uint64_t run_need_bytes = figures.need_bytes;
    const record::DevicePeaks& peaks = one_at_a_time ? largest_peaks : sum;
    std::optional<std::uint64_t> lag_bytes;
    const auto minimum = find_device_minimum(observation, i, figures.no_minimum);
    if (minimum) figures.need_bytes += minimum->above_run_bytes;
    figures.minimum_need_bytes = figures.need_bytes;
    if (minimum) {
      figures.orders = minimum->orders;
      figures.no_orders = minimum->no_orders;
      if (run_need_bytes > figures.context_bytes + peaks.reserved_bytes) figures.no_times = minimum->no_times;
      figures.minimum_need_bytes -= std::min(minimum->saved_bytes, figures.need_bytes - figures.context_bytes);
      figures.retries_at_minimum = minimum->retries;
      lag_bytes = minimum->lag_bytes;
    }
    figures.minimum_limit_bytes = figures.minimum_need_bytes - figures.context_bytes;
    figures.peak_reserved_bytes = std::min(peaks.reserved_bytes, run_need_bytes);
    figures.peak_allocated_bytes = std::min(peaks.allocated_bytes, run_need_bytes);
    if (observation.lagging_clock) {
      figures.peak_reserved_lagging_bytes = figures.peak_reserved_bytes;
    } else if (lag_bytes) {
      const std::uint64_t room_bytes = observation.capacity_bytes - std::min(observation.capacity_bytes, figures.need_bytes);
      figures.peak_reserved_lagging_bytes = figures.peak_reserved_bytes + std::min(*lag_bytes, room_bytes);
    }
    if (figures.orders) {
      figures.peak_reserved_bytes = figures.orders->middle_bytes;
      if (figures.peak_reserved_lagging_bytes) *figures.peak_reserved_lagging_bytes += minimum->above_run_bytes;
    }
    all.push_back(figures);
  }
  return all;
}

nlohmann::json process_list(const Observation& observation) {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& process : observation.book.processes) {
    const record::Process* recorded = record_of(observation, process.pid);
    nlohmann::json devices = nlohmann::json::array();
    for (int i = 0; i < static_cast<int>(observation.book.devices.size()); ++i) {
      const auto& device = process.devices[i];
      if (!touched(device)) continue;
      const record::DevicePeaks peaks = torch_peaks(observation, process, i);
      devices.push_back({{"device", i},
                         {"peak_allocated_bytes", peaks.allocated_bytes},
                         {"peak_reserved_bytes", peaks.reserved_bytes},
                         {"peak_device_bytes", device.allocated_peak_bytes},
                         {"context_bytes", context_of(observation, process, i)},
                         {"allocations", device.allocation_calls},
                         {"kernels", process.launches}});
    }
    if (devices.empty() && recorded == nullptr) continue;
    nlohmann::json item = {{"pid", process.pid}, {"command", process.comm}, {"torch", nullptr}, {"devices", std::move(devices)}};
    if (recorded != nullptr && recorded->imported_torch) item["torch"] = recorded->torch;
    if (recorded != nullptr && recorded->world_size > 0) {
      item["rank"] = recorded->rank;
      item["world_size"] = recorded->world_size;
    }
    if (recorded != nullptr && !recorded->arguments.empty()) {
      std::string command;
      for (const auto& argument : recorded->arguments) command += (command.empty() ? "" : " ") + argument;
      item["command"] = command;
    }
    list.push_back(std::move(item));
  }
  return list;
}

}  // namespace gpumem::estimate
