// SPDX-License-Identifier: Apache-2.0
// From what a probe observed to an estimate.
#include "estimator/estimate/estimate.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <set>

#include "base/clock.h"
#include "base/size.h"
#include "base/text.h"
#include "estimator/estimate/figures.h"

namespace gpumem::estimate {
namespace {

// Of a program's own words, in an error.
constexpr std::size_t kLongestQuote = 400;

struct Verdict {
  std::string status = "complete", reason, error;
};

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

bool says_out_of_memory(const std::string& error) {
  const std::string text = lower(error);
  // Host memory has other words: MemoryError, "can't allocate memory", std::bad_alloc.
  return text.find("outofmemoryerror") != std::string::npos || text.find("cuda out of memory") != std::string::npos ||
         text.find("cuda error: out of memory") != std::string::npos || text.find("cuda failure 2") != std::string::npos ||
         text.find("alloc_failed") != std::string::npos;
}

// What the program itself said of its failure: the first exception recorded, else the end of its output.
std::string own_words(const Observation& seen) {
  for (const auto& process : seen.record.processes) {
    if (!process.error.empty()) return process.error.substr(0, process.error.find('\n'));
  }
  return last_line(seen.output_tail, kLongestQuote);
}

std::string how_it_ended(const Observation& seen) {
  std::string text = seen.signal != 0 ? "by signal " + std::to_string(seen.signal) + " (" + strsignal(seen.signal) + ")"
                                      : "with exit status " + std::to_string(seen.exit_status);
  const std::string words = own_words(seen);
  return words.empty() ? text : text + ": " + words;
}

// The process that lost our library, if any: PyTorch's CUDA build without the virtual GPU.
const SeenTorch* find_lost(const Observation& seen) {
  if (seen.on_cpu) return nullptr;
  for (const auto& process : seen.seen_torch) {
    if (process.cuda_build && !process.virtual_gpu) return &process;
  }
  return nullptr;
}

Verdict preload_lost(const SeenTorch& process) {
  return {"unsupported", "preload_lost",
          "process " + std::to_string(process.pid) + " (" + process.command +
              ") ran PyTorch without the virtual GPU: the script replaces LD_PRELOAD, clears the environment (env -i) or enters a container"};
}

bool torch_was_cpu_only(const Observation& seen) {
  if (seen.on_cpu) return false;
  bool any = false;
  for (const auto& process : seen.record.processes) {
    if (!process.imported_torch) continue;
    if (!process.cuda.empty()) return false;
    any = true;
  }
  for (const auto& process : seen.seen_torch) {
    if (process.cuda_build) return false;
    any = true;
  }
  return any;
}

bool torch_was_seen(const Observation& seen) {
  return !seen.seen_torch.empty() ||
         std::any_of(seen.record.processes.begin(), seen.record.processes.end(), [](const auto& process) { return process.imported_torch; });
}

Verdict cpu_only_torch() {
  return {"unsupported", "cpu_only_torch", "this PyTorch was built without CUDA: install a CUDA build to train on a GPU"};
}

std::uint64_t refusals(const Observation& seen, std::uint64_t* largest_bytes) {
  std::uint64_t count = 0;
  for (const auto& process : seen.book.processes) {
    for (const auto& device : process.devices) {
      count += device.out_of_memory_count;
      *largest_bytes = std::max(*largest_bytes, device.out_of_memory_bytes);
    }
  }
  return count;
}

// What makes a host refuse address space, and what to do about it.
std::string why_refused(const Observation& seen) {
  if (seen.strict_overcommit) {
    return "this host counts address space as memory (vm.overcommit_memory is 2), and device memory is address space here: "
           "estimate on a host where it is 0 or 1, or for a GPU with less memory (--capacity)";
  }
  if (seen.address_space_limit_bytes > 0) {
    return "an address-space limit of " + format_size(seen.address_space_limit_bytes) +
           " is in force (ulimit -v), and device memory is address space here: raise it above the GPU's memory and the program's own";
  }
  if (seen.data_limit_bytes > 0) {
    return "a data limit of " + format_size(seen.data_limit_bytes) +
           " is in force (ulimit -d), and device memory is private memory of the process here: raise it above the GPU's memory and the program's own";
  }
  return "does the program set an address-space limit (ulimit -v, -d)?";
}

// What bounds the host's memory, and what to do about it.
std::string host_memory_bound(const Observation& seen) {
  if (seen.memory_group_limit_bytes > 0) {
    return "this session may use " + format_size(seen.memory_group_limit_bytes) +
           " (its control group's memory limit): estimate where more is allowed, or with fewer data-loading workers";
  }
  return "estimate on a host with more of it, or with fewer data-loading workers";
}

Verdict judge_failure(const Observation& seen) {
  if (const SeenTorch* lost = find_lost(seen)) return preload_lost(*lost);
  if (torch_was_cpu_only(seen)) return cpu_only_torch();
  std::uint64_t refused_bytes = 0;
  const bool refused = refusals(seen, &refused_bytes) > 0;
  bool any_error = false, oom_error = false;
  for (const auto& process : seen.record.processes) {
    any_error = any_error || !process.error.empty();
    oom_error = oom_error || says_out_of_memory(process.error);
  }
  if (refused && (oom_error || !any_error)) {
    return {"out_of_memory", "out_of_memory",
            "out of memory on a GPU with " + format_size(seen.capacity_bytes) + ": a request of " + format_size(refused_bytes) + " was refused"};
  }
  if (seen.kernel_kills > 0) {
    return {"failed", "host_failure",
            "the host's memory (not the GPU's) ran out and the kernel ended a process of the program, or one beside it; " + host_memory_bound(seen)};
  }
  for (const auto& process : seen.book.processes) {
    if (process.host_failures == 0) continue;
    return {"failed", "host_failure",
            std::string("the host refused ") + process.host_failure + " (" + strerror(process.host_errno) + ", " +
                format_size(process.host_failure_bytes) + "): " + why_refused(seen)};
  }
  if (!seen.book.missing.empty()) {
    return {"unsupported", "missing_function",
            std::string("the program called ") + seen.book.missing.front().name + ", which the virtual GPU does not have, and ended " + how_it_ended(seen)};
  }
  return {"failed", "program_failed", "the program ended " + how_it_ended(seen)};
}

Verdict judge(const Observation& seen) {
  if (!seen.no_sandbox_step.empty()) {
    return {"unsupported", "no_sandbox",
            "no sandbox here, so the program was not run: " + seen.no_sandbox_step + ". --no-sandbox runs it without protection of your files"};
  }
  if (seen.interrupted) return {"failed", "program_failed", "interrupted"};
  if (seen.memory_exceeded_bytes > 0) {
    return {"failed", "host_failure",
            "the program took " + format_size(seen.memory_exceeded_bytes) + " of the host's memory (not the GPU's), more than the " +
                format_size(seen.memory_allowed_bytes) + " that the probe may use; " + host_memory_bound(seen)};
  }
  if (seen.timed_out) {
    return {"timeout", "deadline", "no end and no stable peak within " + format_duration(seen.timeout_s)};
  }
  if (seen.exit_status != 0) return judge_failure(seen);
  if (const SeenTorch* lost = find_lost(seen)) return preload_lost(*lost);
  if (used_device_memory(seen) || (seen.on_cpu && torch_was_seen(seen))) return {};
  if (torch_was_cpu_only(seen)) return cpu_only_torch();
  if (!torch_was_seen(seen)) return {"unsupported", "no_torch", "the program ended without importing PyTorch"};
  std::string error = "the program imported PyTorch and never allocated memory on the GPU: it ran on the CPU";
  if (!seen.book.missing.empty()) error += std::string(" (it called ") + seen.book.missing.front().name + ", which the virtual GPU does not have)";
  return {"unsupported", "no_cuda_use", error};
}

// What is the rule in healthy training (values read for a log line, parameters that stay frozen) does not make an estimate doubtful.
bool lowers_confidence(const std::string& kind) {
  return kind != "stand-in" && kind != "guess-scalar" && kind != "guess-finite" && kind != "events" && kind != "frozen";
}

// Collects sentences once each, and whether any of them lowers the confidence.
struct Notes {
  nlohmann::json list = nlohmann::json::array();
  bool guessed = false;
  std::set<std::string> known;

  void add(const std::string& text, bool lowers) {
    if (text.empty()) return;
    guessed = guessed || lowers;
    if (known.insert(text).second) list.push_back(text);
  }
};

Notes collect_notes(const Observation& seen, bool stopped_early, std::uint64_t steps) {
  Notes notes;
  if (stopped_early && !seen.on_cpu && steps > 0) {  // without steps the shim says after what
    notes.add("ended early after " + std::to_string(steps) + " optimizer steps, when the peak had been stable", true);
  }
  for (const auto& process : seen.record.processes) {
    for (const auto& note : process.notes) notes.add(note.text, lowers_confidence(note.kind));
    if (!process.tracer.empty() && process.tracer != "active" && !process.cuda.empty() && !seen.on_cpu) {
      notes.add("values were not followed (" + process.tracer + "): what depends on them may differ", true);
    }
    if (process.imported_torch && !process.cuda.empty() && process.cudnn > 0 && process.cudnn < 90800 && !seen.own_cudnn && !seen.on_cpu) {
      notes.add("this job's cuDNN (" + record::cudnn_version_text(process.cudnn) +
                    ") cannot plan without a GPU and no newer one is installed: workspaces of convolutions are by rule", true);
    }
  }
  for (const auto& process : seen.book.processes) {
    if (std::any_of(std::begin(process.devices), std::end(process.devices), [](const auto& device) { return device.allocated_peak_bytes > 0; }) &&
        record_of(seen, process.pid) == nullptr) {
      notes.add("a process (" + std::string(process.comm) + ") was not followed from inside: its epochs were not shortened and its peak is that of the device", true);
    }
  }
  std::uint64_t refused_bytes = 0;
  if (refusals(seen, &refused_bytes) > 0 && seen.exit_status == 0) {
    notes.add("the program met out of memory (a request of " + format_size(refused_bytes) + ") and went on: with more memory it would use more", true);
  }
  for (const auto& missing : seen.book.missing) {
    notes.add(std::string("the program called ") + missing.name + ", which the virtual GPU does not have, and went on", true);
  }
  // What is assumed of the GPU matters only where it entered a figure.
  const bool used = used_device_memory(seen);
  if (used && seen.gpu.fields.count("context_bytes") && seen.gpu.fields.at("context_bytes").source == "assumed") {
    notes.add("the CUDA context of a process on " + seen.gpu.name + " is assumed to take " + format_size(seen.gpu.context_bytes()) + ", an upper bound", false);
  }
  for (const auto& process : seen.record.processes) {
    const gpus::Context* closest = used ? seen.gpu.closest_context(process.torch, process.cuda) : nullptr;
    if (closest != nullptr && closest->torch != process.torch) {
      notes.add("the CUDA context of PyTorch " + process.torch + " on " + seen.gpu.name + " was not measured: that of " + closest->torch + " was taken", false);
    }
  }
  std::string also_assumed;
  for (const auto& field : seen.gpu.assumed_fields()) {
    if (field != "context_bytes") also_assumed += (also_assumed.empty() ? "" : ", ") + field;
  }
  if (used && !also_assumed.empty()) notes.add("of " + seen.gpu.name + " these are assumed, too: " + also_assumed, false);
  for (const auto& note : seen.notes) notes.add(note, false);
  return notes;
}

void add_versions(const Observation& seen, nlohmann::json& estimate) {
  for (const char* key : {"torch", "cuda", "cudnn", "python"}) estimate[key] = nullptr;
  for (const auto& process : seen.record.processes) {
    if (!process.imported_torch) continue;
    estimate["torch"] = process.torch;
    estimate["python"] = process.python;
    if (!process.cuda.empty()) estimate["cuda"] = process.cuda;
    if (process.cudnn > 0) {
      const std::string version = record::cudnn_version_text(process.cudnn);
      // 9.8 is the first that plans for a described device.
      if (process.cudnn >= 90800) estimate["cudnn"] = version + " (the job's own)";
      else if (seen.own_cudnn) estimate["cudnn"] = version + " (the job's own; a newer one of gpumem's planned)";
      else estimate["cudnn"] = version + " (the job's own; too old to plan without a GPU)";
    }
    break;
  }
  for (const auto& process : seen.record.processes) {
    if (!process.planner.empty()) estimate["cudnn"] = process.planner;  // what really planned
  }
}

}  // namespace

static nlohmann::json lagging(const DeviceFigures& figures) {
  return figures.peak_reserved_lagging_bytes ? nlohmann::json(*figures.peak_reserved_lagging_bytes) : nlohmann::json();
}

static nlohmann::json orders_json(const allocator::Orders& orders) {
  return {{"count", orders.count}, {"batches", orders.batches}, {"shapes", orders.shapes}, {"shapes_looked_at", orders.looked_at},
          {"lowest_bytes", orders.lowest_bytes}, {"middle_bytes", orders.middle_bytes}, {"highest_bytes", orders.highest_bytes},
          {"as_run_bytes", orders.as_run_bytes}, {"out_of_memory", orders.full}};
}

static std::string orders_note(const DeviceFigures& figures, bool one_device, std::size_t device) {
  const std::string where = one_device ? "" : "device " + std::to_string(device) + ": ";
  if (!figures.orders) return where + "batches have different sizes, and only the order that was run was looked at: " + figures.no_orders;
  const auto& orders = *figures.orders;
  std::string note = where + "batches have different sizes: in " + std::to_string(orders.count) + " orders of " + std::to_string(orders.batches) +
                     " batches PyTorch reserves " + format_size(orders.lowest_bytes) + " to " + format_size(orders.highest_bytes) +
                     ", in the middle " + format_size(orders.middle_bytes) + "; the need is enough for all of them";
  if (orders.full > 0) note += "; " + std::to_string(orders.full) + " of them run out of memory on this GPU";
  if (orders.shapes < orders.looked_at) {
    note += " (made of " + std::to_string(orders.shapes) + " of the " + std::to_string(orders.looked_at) + " shapes that were seen)";
  }
  return note;
}

nlohmann::json make_estimate(const Observation& seen) {
  const Verdict verdict = judge(seen);
  std::uint64_t steps = 0;
  bool stopped_early = false;
  std::set<std::string> files;
  for (const auto& process : seen.record.processes) {
    steps = std::max(steps, process.steps);
    stopped_early = stopped_early || process.stop_reason == "stable";
    files.insert(process.files.begin(), process.files.end());
  }
  Notes notes = collect_notes(seen, stopped_early, steps);

  nlohmann::json estimate = {{"version", 1}, {"status", verdict.status}, {"method", seen.on_cpu ? "xmem" : "virtual_gpu"}};
  if (!verdict.error.empty()) estimate["error"] = verdict.error;
  if (!verdict.reason.empty()) estimate["reason"] = verdict.reason;
  // High until apply_proof() has seen whether it was proven.
  estimate["confidence"] = verdict.status != "complete" ? "low" : notes.guessed ? "medium" : "high";

  const auto figures = device_figures(seen);
  DeviceFigures largest;
  nlohmann::json devices = nlohmann::json::array();
  for (std::size_t i = 0; i < figures.size(); ++i) {
    devices.push_back({{"device", i},
                       {"peak_allocated_bytes", figures[i].peak_allocated_bytes},
                       {"peak_reserved_bytes", figures[i].peak_reserved_bytes},
                       {"peak_reserved_lagging_bytes", lagging(figures[i])},
                       {"minimum_limit_bytes", figures[i].minimum_limit_bytes},
                       {"minimum_need_bytes", figures[i].minimum_need_bytes},
                       {"retries_at_minimum", figures[i].retries_at_minimum},
                       {"context_bytes", figures[i].context_bytes},
                       {"need_bytes", figures[i].need_bytes}});
    if (figures[i].orders) devices.back()["orders"] = orders_json(*figures[i].orders);
    if (figures[i].orders || !figures[i].no_orders.empty()) notes.add(orders_note(figures[i], figures.size() == 1, i), false);
    if (!figures[i].no_times.empty()) {
      notes.add("when libraries took device memory is not known (" + figures[i].no_times + "): it is counted in full, and a limit below the peak may not hold", false);
    }
    if (figures[i].need_bytes > largest.need_bytes) largest = figures[i];
  }
  estimate["peak_allocated_bytes"] = largest.peak_allocated_bytes;
  estimate["peak_reserved_bytes"] = largest.peak_reserved_bytes;
  estimate["peak_reserved_lagging_bytes"] = lagging(largest);
  if (largest.orders) estimate["orders"] = orders_json(*largest.orders);
  estimate["minimum_limit_bytes"] = largest.minimum_limit_bytes;
  std::uint64_t minimum_need_bytes = 0;  // each device must have what the hungriest needs
  for (const auto& device : figures) minimum_need_bytes = std::max(minimum_need_bytes, device.minimum_need_bytes);
  estimate["minimum_need_bytes"] = minimum_need_bytes;
  estimate["no_minimum"] = largest.no_minimum.empty() ? nlohmann::json() : nlohmann::json(largest.no_minimum);
  estimate["context_bytes"] = largest.context_bytes;
  estimate["context_of_a_process_bytes"] = largest_context(seen);
  estimate["need_bytes"] = largest.need_bytes;
  estimate["proof"] = nullptr;
  estimate["gpu"] = seen.gpu.name;
  estimate["capacity_bytes"] = seen.capacity_bytes;
  add_versions(seen, estimate);
  estimate["wall_s"] = seen.wall_s;
  estimate["steps"] = steps;
  estimate["stopped_early"] = stopped_early;
  estimate["processes"] = process_list(seen);
  estimate["devices"] = std::move(devices);
  estimate["program"] = nlohmann::json::object();
  if (seen.signal != 0) estimate["program"]["signal"] = seen.signal;
  else if (seen.exit_status >= 0) estimate["program"]["exit_status"] = seen.exit_status;
  estimate["missing_functions"] = nlohmann::json::array();
  for (const auto& missing : seen.book.missing) estimate["missing_functions"].push_back(missing.name);
  estimate["files"] = files;
  estimate["notes"] = notes.list;
  if (seen.has_output_tail) estimate["output_tail"] = seen.output_tail;
  return estimate;
}

int exit_status_of(const nlohmann::json& estimate) {
  const std::string status = estimate.value("status", "");
  if (status == "complete") return 0;
  if (status == "out_of_memory") return 3;
  if (status == "failed") return 4;
  if (status == "unsupported") return 5;
  if (status == "timeout") return 124;
  return 1;
}

}  // namespace gpumem::estimate
