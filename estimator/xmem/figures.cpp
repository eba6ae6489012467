// SPDX-License-Identifier: Apache-2.0
// From sequences to an estimate.
#include "estimator/xmem/figures.h"

#include <dirent.h>

#include <algorithm>
#include <optional>

#include "base/size.h"
#include "estimator/allocator/config.h"
#include "estimator/allocator/replay.h"
#include "estimator/xmem/rebuild.h"
#include "estimator/xmem/sequence.h"

namespace gpumem::xmem {
namespace {

std::vector<std::string> sequence_files(const std::string& directory) {
  std::vector<std::string> files;
  DIR* listing = ::opendir(directory.c_str());
  if (listing == nullptr) return files;
  while (const dirent* entry = ::readdir(listing)) {
    const std::string name = entry->d_name;
    if (name.starts_with("sequence-") && name.ends_with(".bin")) files.push_back(directory + "/" + name);
  }
  ::closedir(listing);
  std::sort(files.begin(), files.end());
  return files;
}

std::optional<std::string> variable(const std::vector<std::string>& environment, const std::string& name) {
  for (const auto& entry : environment) {
    if (entry.starts_with(name + "=")) return entry.substr(name.size() + 1);
  }
  return std::nullopt;
}

allocator::Trace trace_of(const Rebuilt& rebuilt) {
  using Kind = allocator::Request::Kind;
  allocator::Trace trace;
  trace.slots = rebuilt.blocks;
  std::uint64_t live_bytes = 0, time = 0;
  for (const auto& request : rebuilt.requests) {
    trace.requests.push_back({request.allocate ? Kind::allocate : Kind::free, 0, 0, request.block, request.bytes, 0, ++time});
    live_bytes = request.allocate ? live_bytes + request.bytes : live_bytes - request.bytes;
    trace.peak_requested_bytes = std::max(trace.peak_requested_bytes, live_bytes);
  }
  return trace;
}

struct Figures {
  std::uint64_t peak_allocated_bytes = 0, peak_reserved_bytes = 0, minimum_limit_bytes = 0;
  std::uint64_t processes = 0;
  Rebuilt largest;  // without its requests
};

void add(Figures& figures, const Rebuilt& rebuilt, const allocator::Config& config, std::uint64_t total_bytes) {
  allocator::Trace trace = trace_of(rebuilt);
  const allocator::Participant participant{&trace, config};
  const auto limit = allocator::find_minimum_limit({&participant, 1}, total_bytes);
  if (!limit) return;
  figures.peak_allocated_bytes += limit->peak_allocated_bytes;
  figures.peak_reserved_bytes += limit->peak_device_bytes;
  figures.minimum_limit_bytes += limit->limit_bytes;
  ++figures.processes;
  if (figures.processes == 1 || rebuilt.parameter_bytes > figures.largest.parameter_bytes) {
    figures.largest = rebuilt;
    figures.largest.requests.clear();
  }
}

void fail(nlohmann::json& estimate, const char* status, const char* reason, const std::string& error) {
  estimate["status"] = status;
  estimate["reason"] = reason;
  estimate["error"] = error;
  estimate["confidence"] = "low";
}

}  // namespace

bool was_recorded(const std::string& record_directory) { return !sequence_files(record_directory).empty(); }

void add_figures(const std::string& record_directory, const estimate::Observation& seen, const std::vector<std::string>& environment,
                 nlohmann::json& estimate) {
  auto& notes = estimate["notes"];
  allocator::Config config;
  for (const auto& process : seen.record.processes) {
    auto version = allocator::parse_version(process.torch);
    if (!version) continue;
    config.version = *version;
    auto own = allocator::config_from_environment(variable(environment, "PYTORCH_CUDA_ALLOC_CONF"), variable(environment, "PYTORCH_ALLOC_CONF"), *version);
    if (own) config = *own;
    else notes.push_back("the allocator's settings were not followed: " + own.error().message);
    break;
  }

  Figures figures;
  std::string why;
  for (const auto& path : sequence_files(record_directory)) {
    auto events = read_sequence(path);
    if (!events) {
      why = events.error().message;
      continue;
    }
    auto rebuilt = rebuild(*events);
    if (!rebuilt) why = rebuilt.error().message;
    else add(figures, *rebuilt, config, seen.gpu.total_bytes());
  }

  const std::uint64_t context_bytes = figures.processes * seen.gpu.context_bytes();
  const std::uint64_t need_bytes = figures.processes == 0 ? 0 : figures.minimum_limit_bytes + context_bytes;
  estimate["peak_allocated_bytes"] = figures.peak_allocated_bytes;
  estimate["peak_reserved_bytes"] = figures.peak_reserved_bytes;
  estimate["minimum_limit_bytes"] = figures.minimum_limit_bytes;
  estimate["context_bytes"] = context_bytes;
  estimate["need_bytes"] = need_bytes;
  estimate["devices"] = nlohmann::json::array({{{"device", 0},
                                                {"peak_allocated_bytes", figures.peak_allocated_bytes},
                                                {"peak_reserved_bytes", figures.peak_reserved_bytes},
                                                {"context_bytes", context_bytes},
                                                {"need_bytes", need_bytes}}});
  estimate["xmem"] = {{"iterations", figures.largest.iterations},
                      {"parameter_bytes", figures.largest.parameter_bytes},
                      {"gradient_bytes", figures.largest.gradient_bytes},
                      {"optimizer_bytes", figures.largest.optimizer_bytes},
                      {"data_bytes", figures.largest.data_bytes}};
  estimate["cudnn"] = nullptr;  // nothing was asked of it
  if (estimate["status"] != "complete") return;
  if (figures.processes == 0) {
    fail(estimate, "unsupported", "no_training", why.empty() ? "no process was recorded: xMem's method needs a program that trains with PyTorch" : why);
    return;
  }
  if (need_bytes > seen.capacity_bytes) {
    fail(estimate, "out_of_memory", "out_of_memory",
         "out of memory on a GPU with " + format_size(seen.capacity_bytes) + ": " + format_size(need_bytes) + " would be needed");
  } else {
    estimate["confidence"] = "medium";
  }
  const bool without_cuda = std::any_of(seen.record.processes.begin(), seen.record.processes.end(),
                                        [](const auto& process) { return process.imported_torch && process.cuda.empty(); });
  notes.push_back(std::string(without_cuda ? "this PyTorch was built without CUDA: " : "") + "by xMem's method: " + std::to_string(std::min(figures.largest.iterations, 3)) +
                  " iterations on the CPU, rebuilt by its rules; it does not see workspaces, what operators need on a GPU alone, nor what is computed "
                  "outside of modules");
  if (seen.gpu.fields.count("context_bytes") && seen.gpu.fields.at("context_bytes").source == "assumed") {
    notes.push_back("the CUDA context of a process on " + seen.gpu.name + " is assumed to take " + format_size(seen.gpu.context_bytes()) + ", an upper bound");
  }
  if (figures.processes > 1) notes.push_back(std::to_string(figures.processes) + " processes trained: their needs are added up");
}

}  // namespace gpumem::xmem
