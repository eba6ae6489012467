// SPDX-License-Identifier: Apache-2.0
// A kept record as one JSON object.
#include "estimator/explain/report.h"

#include <algorithm>
#include <optional>

#include "base/file.h"
#include "base/size.h"
#include "estimator/allocator/outside.h"
#include "estimator/allocator/replay.h"
#include "estimator/explain/explain.h"

namespace gpumem::explain {
namespace {

constexpr std::size_t kMostShares = 200;
// A device for replays without a limit: larger than any GPU, so that only fractions that the program set can refuse.
constexpr std::uint64_t kAnyDevice = 1024 * kGiB;

nlohmann::json moment_json(const Moment& moment) {
  return {{"time_s", moment.time_s}, {"step", moment.step}, {"allocated_bytes", moment.allocated_bytes}, {"reserved_bytes", moment.reserved_bytes},
          {"outside_bytes", moment.outside_bytes}};
}

nlohmann::json shares_json(const std::vector<Share>& shares) {
  nlohmann::json list = nlohmann::json::array();
  for (const Share& share : shares) {
    if (list.size() == kMostShares) break;
    list.push_back({{"name", share.name}, {"bytes", share.bytes}, {"blocks", share.blocks}});
  }
  return list;
}

// The same requests with other settings: peak reserved and minimum limit.
nlohmann::json what_if(const allocator::Trace& trace, const allocator::Config& config) {
  const auto outcome = [&](const allocator::Config& tried, const std::string& setting) -> nlohmann::json {
    const allocator::Participant participant{&trace, tried};
    const auto found = allocator::find_minimum_limit({&participant, 1}, kAnyDevice);
    if (!found) return nullptr;
    return {{"setting", setting}, {"peak_reserved_bytes", found->peak_reserved_bytes}, {"minimum_limit_bytes", found->limit_bytes}};
  };
  nlohmann::json list = nlohmann::json::array();
  if (auto as_run = outcome(config, ""); !as_run.is_null()) list.push_back(as_run);
  allocator::Config other = config;
  other.expandable_segments = !config.expandable_segments;
  if (auto tried = outcome(other, other.expandable_segments ? "expandable_segments:True" : "expandable_segments:False"); !tried.is_null()) {
    list.push_back(tried);
  }
  return list;
}

nlohmann::json device_json(const record::EventFile& file, const record::Process& process, int device, const std::vector<allocator::Outside>& outside) {
  const Explanation found = explain(file.events, process, device, outside);
  nlohmann::json parts = nlohmann::json::array(), timeline = nlohmann::json::array(), candidates = nlohmann::json::array();
  for (const Kind kind : kKinds) {
    if (const auto bytes = found.bytes.find(kind); bytes != found.bytes.end()) parts.push_back({{"kind", kind_text(kind)}, {"bytes", bytes->second}});
  }
  parts.push_back({{"kind", "cache"}, {"bytes", found.cache_bytes()}});
  for (const Moment& moment : found.timeline) timeline.push_back(moment_json(moment));
  for (const Candidate& candidate : found.candidates) {
    candidates.push_back({{"kind", candidate.word}, {"text", candidate.text}, {"saves_bytes", candidate.saves_bytes}});
  }
  auto peak = moment_json(found.peak);
  peak["operator"] = found.peak_operator;
  peak["module"] = found.peak_module;
  return {{"device", device},
          {"peak", peak},
          {"peak_reserved_bytes", found.reserved_peak_bytes},
          {"peak_device_bytes", found.device_peak_bytes},
          {"attributed", found.attributed},
          {"parts", parts},
          {"activations", shares_json(found.activations)},
          {"operators", shares_json(found.operators)},
          {"candidates", candidates},
          {"timeline", timeline}};
}

const record::Process* process_of(const record::Record& record, std::uint64_t pid) {
  for (const auto& process : record.processes) {
    if (process.pid == static_cast<pid_t>(pid) && process.imported_torch) return &process;
  }
  return nullptr;
}

}  // namespace

Result<nlohmann::json> explain_record(const std::string& directory) {
  auto text = read_file(directory + "/estimate.json");
  if (!text) return text.error().with_context("no record in " + directory);
  auto estimate = nlohmann::json::parse(*text, nullptr, false);
  if (estimate.is_discarded() || !estimate.is_object()) return Error{ErrorKind::io, directory + "/estimate.json is not JSON: the record is damaged"};
  auto record = record::read_record(directory);
  if (!record) return record.error();
  std::vector<std::string> problems;
  nlohmann::json processes = nlohmann::json::array();
  for (const auto& file : record::read_all_events(directory, problems)) {
    const record::Process* process = process_of(*record, file.process);
    if (process == nullptr) continue;
    nlohmann::json devices = nlohmann::json::array();
    auto traces = allocator::traces_of(file);
    const auto log = record->memory.find(process->pid);
    const bool knows_outside = log != record->memory.end() && !log->second.cut;
    if (!knows_outside) {
      problems.push_back("when process " + std::to_string(file.process) + " took device memory past PyTorch's allocator (NCCL, libraries) is not in the record: " +
                         (log == record->memory.end() ? "it is of an earlier version" : "it was not all written down"));
    }
    for (const int device : devices_of(file.events)) {
      const auto outside = knows_outside ? allocator::outside_of(log->second, file, device) : std::vector<allocator::Outside>();
      auto one = device_json(file, *process, device, outside);
      const auto trace = traces.find(device);
      if (trace != traces.end()) trace->second.outside = outside;
      const auto config = allocator::config_of(*process);
      std::string why_not;
      if (!config) why_not = config.error().message;
      else if (trace == traces.end()) why_not = "its requests on this device were not recorded";
      else if (!allocator::reproduces({&trace->second, *config}, kAnyDevice)) why_not = "the allocator's model does not come to the peak that it had";
      one["what_if"] = why_not.empty() ? what_if(trace->second, *config) : nlohmann::json::array();
      if (!why_not.empty()) {
        problems.push_back("nothing is said of other settings for process " + std::to_string(file.process) + " on device " + std::to_string(device) +
                           ": " + why_not);
      }
      devices.push_back(std::move(one));
    }
    processes.push_back({{"pid", file.process}, {"command", process->arguments}, {"steps", process->steps}, {"devices", devices}});
  }
  if (processes.empty()) {
    std::string why = "the record in " + directory + " has no allocator events";
    for (const auto& process : record->processes) {
      if (process.tracer.starts_with("absent")) why += " (values were not followed: " + process.tracer.substr(8) + ")";
    }
    for (const auto& problem : problems) why += "; " + problem;
    return Error{ErrorKind::not_found, why};
  }
  return nlohmann::json{{"version", 1}, {"record", directory}, {"estimate", estimate}, {"processes", processes}, {"notes", problems}};
}

}  // namespace gpumem::explain
