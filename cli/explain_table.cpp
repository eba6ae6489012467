// SPDX-License-Identifier: Apache-2.0
// An explanation as text for people.
#include "cli/explain_table.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>

#include "base/clock.h"
#include "base/size.h"

namespace gpumem::cli {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kBarWidth = 30, kTimelineWidth = 72;

std::uint64_t bytes(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
}

std::string text(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string row(const std::string& name, std::uint64_t value, const std::string& rest) {
  char line[400];
  std::snprintf(line, sizeof line, "  %-44.120s %10s  %s\n", name.c_str(), format_size(value).c_str(), rest.c_str());
  return line;
}

std::string share_of(std::uint64_t part, std::uint64_t whole) {
  char line[16];
  std::snprintf(line, sizeof line, "%3.0f %%", whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0.0);
  return line;
}

std::string bar(std::uint64_t part, std::uint64_t whole) {
  const std::size_t filled = whole > 0 ? static_cast<std::size_t>(static_cast<double>(part) / static_cast<double>(whole) * kBarWidth + 0.5) : 0;
  return std::string(std::min(filled, kBarWidth), '#');
}

std::string parts(const Json& device, std::uint64_t context_bytes) {
  std::uint64_t whole = context_bytes;
  for (const auto& part : device["parts"]) whole += bytes(part, "bytes");
  std::string out;
  const auto add = [&](const std::string& kind, std::uint64_t value) {
    if (value > 0) out += row(kind, value, share_of(value, whole) + " " + bar(value, whole));
  };
  for (const auto& part : device["parts"]) add(text(part, "kind"), bytes(part, "bytes"));
  add("context (outside PyTorch's allocator)", context_bytes);
  return out;
}

std::string shares(const char* head, const Json& list, std::size_t most) {
  if (!list.is_array() || list.empty()) return "";
  std::string out = std::string(head) + "\n";
  std::size_t shown = 0;
  std::uint64_t rest = 0;
  for (const auto& share : list) {
    if (shown++ < most) out += row(text(share, "name"), bytes(share, "bytes"), std::to_string(bytes(share, "blocks")) + (bytes(share, "blocks") == 1 ? " block" : " blocks"));
    else rest += bytes(share, "bytes");
  }
  if (rest > 0) out += row("… and " + std::to_string(list.size() - most) + " more", rest, "");
  return out;
}

// Allocated memory over the run, one character a moment, as tall as eighths of the peak.
std::string timeline(const Json& device) {
  static constexpr const char* kLevels[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const auto& moments = device["timeline"];
  const std::uint64_t peak = bytes(device["peak"], "allocated_bytes");
  if (!moments.is_array() || moments.empty() || peak == 0) return "";
  const std::size_t width = std::min(kTimelineWidth, moments.size());
  std::string out = "timeline of allocated memory, " + format_duration(moments.back().value("time_s", 0.0)) + "\n  ";
  for (std::size_t column = 0; column < width; ++column) {
    std::uint64_t most = 0;
    const std::size_t begin = column * moments.size() / width, end = (column + 1) * moments.size() / width;
    for (std::size_t i = begin; i < end; ++i) most = std::max(most, bytes(moments[i], "allocated_bytes"));
    out += kLevels[std::min<std::uint64_t>(8, (most * 8 + peak / 2) / peak)];
  }
  return out + "\n";
}

// What NCCL, libraries and the program itself took of the device, beside PyTorch's allocator.
std::string outside(const Json& device) {
  std::uint64_t most = 0;
  for (const auto& moment : device["timeline"]) most = std::max(most, bytes(moment, "outside_bytes"));
  if (most == 0) return "";
  return "past PyTorch's allocator (NCCL, libraries, cudaMalloc): " + format_size(bytes(device["peak"], "outside_bytes")) + " at the peak, at most " +
         format_size(most) + "; with reserved memory at most " + format_size(bytes(device, "peak_device_bytes")) + " at one moment\n";
}

std::string candidates(const Json& device) {
  std::string out;
  for (const auto& candidate : device["candidates"]) out += "  - " + text(candidate, "text") + "\n";
  const auto what_if = device.find("what_if");
  if (what_if != device.end() && what_if->is_array() && what_if->size() > 1) {
    const std::uint64_t as_run = bytes((*what_if)[0], "minimum_limit_bytes"), as_run_peak = bytes((*what_if)[0], "peak_reserved_bytes");
    for (std::size_t i = 1; i < what_if->size(); ++i) {
      const auto& other = (*what_if)[i];
      out += "  - PYTORCH_CUDA_ALLOC_CONF=" + text(other, "setting") + ": reserved " + format_size(bytes(other, "peak_reserved_bytes")) +
             " instead of " + format_size(as_run_peak) + ", smallest limit " + format_size(bytes(other, "minimum_limit_bytes")) +
             " instead of " + format_size(as_run) + "\n";
    }
  }
  return out.empty() ? "" : "what would lower it (savings are upper bounds; gpumem estimate of the changed program tells)\n" + out;
}

std::string device_text(const Json& device, std::uint64_t context_bytes, std::size_t most) {
  const auto& peak = device["peak"];
  std::string out = "the peak: " + format_size(bytes(peak, "allocated_bytes")) + " allocated of " + format_size(bytes(peak, "reserved_bytes")) +
                    " reserved, after " + std::to_string(bytes(peak, "step")) +
                    (bytes(peak, "step") == 1 ? " optimizer step" : " optimizer steps");
  if (const std::string op = text(peak, "operator"); !op.empty()) out += ", in " + op;
  if (const std::string module = text(peak, "module"); !module.empty()) out += " of " + module;
  out += "\n" + parts(device, context_bytes);
  if (!device.value("attributed", false)) out += "  (parameters, gradients and optimizer state are not told apart: no optimizer step was seen)\n";
  out += shares("activations at the peak", device["activations"], most);
  out += shares("the rest, by what asked for it", device["operators"], most);
  return out + timeline(device) + outside(device) + candidates(device);
}

std::string orders(const Json& estimate) {
  const auto found = estimate.find("orders");
  if (found == estimate.end() || !found->is_object()) return "";
  return "all of this is of the order in which the batches came; in " + std::to_string(bytes(*found, "count")) + " orders PyTorch reserves " +
         format_size(bytes(*found, "lowest_bytes")) + " to " + format_size(bytes(*found, "highest_bytes")) + "\n";
}

}  // namespace

std::string explain_table(const Json& explanation, std::size_t most) {
  std::string out;
  const auto& processes = explanation["processes"];
  const std::uint64_t context_bytes = bytes(explanation["estimate"], "context_bytes");
  for (const auto& process : processes) {
    if (processes.size() > 1) out += "process " + std::to_string(bytes(process, "pid")) + "\n";
    for (const auto& device : process["devices"]) {
      if (process["devices"].size() > 1) out += "device " + std::to_string(device.value("device", 0)) + "\n";
      // Contexts of several processes are in the estimate as one sum.
      out += device_text(device, processes.size() == 1 ? context_bytes : 0, most);
    }
  }
  out += orders(explanation["estimate"]);
  for (const auto& note : explanation["notes"]) out += "note: " + note.get<std::string>() + "\n";
  return out + "record: " + text(explanation, "record") + "\n";
}

}  // namespace gpumem::cli
