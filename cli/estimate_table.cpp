// SPDX-License-Identifier: Apache-2.0
// An estimate as a table for people.
#include "cli/estimate_table.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>

#include "base/clock.h"
#include "base/size.h"

namespace gpumem::cli {
namespace {

constexpr int kLabelWidth = 16;

std::uint64_t bytes(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<std::uint64_t>() : 0;
}

std::string text(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string line(const std::string& label, const std::string& value) {
  std::string out = "  " + label;
  out.resize(std::max<std::size_t>(out.size() + 1, kLabelWidth), ' ');
  return out + value + "\n";
}

std::string headline(const nlohmann::json& estimate) {
  const std::string status = text(estimate, "status"), gpu = text(estimate, "gpu");
  const std::string need = format_size(bytes(estimate, "need_bytes")), capacity = format_size(bytes(estimate, "capacity_bytes"));
  if (status == "complete") return "needs " + need + " of " + capacity + " on " + gpu + " (confidence " + text(estimate, "confidence") + ")\n";
  if (status == "out_of_memory") return "does not fit " + gpu + " (" + capacity + "): " + text(estimate, "error") + "\n";
  if (status == "timeout") return "no estimate: " + text(estimate, "error") + "\n";
  if (status == "failed") return "no estimate: " + text(estimate, "error") + "\n";
  return "cannot be estimated: " + text(estimate, "error") + "\n";
}

std::string proof_result(const nlohmann::json& estimate) {
  const auto proof = estimate.find("proof");
  return proof != estimate.end() && proof->is_object() ? text(*proof, "result") : "";
}

std::string proof_words(const nlohmann::json& estimate) {
  const std::string result = proof_result(estimate);
  return result == "proven" || result == "proven_at_peak" ? "; proven by a second run" : "";
}

// Which order of the batches a run will have is not known.
std::string orders_words(const nlohmann::json& estimate) {
  const auto orders = estimate.find("orders");
  if (orders == estimate.end() || !orders->is_object()) return "";
  return " in the middle of " + std::to_string(bytes(*orders, "count")) + " orders of the batches: " + format_size(bytes(*orders, "lowest_bytes")) + " to " +
         format_size(bytes(*orders, "highest_bytes"));
}

// What may be enough, where nobody has tried.
std::string minimum_line(const nlohmann::json& estimate) {
  const std::uint64_t minimum = bytes(estimate, "minimum_need_bytes");
  if (proof_result(estimate) != "not_asked" || minimum == 0 || minimum >= bytes(estimate, "need_bytes")) return "";
  return line("may be enough", format_size(minimum) + ", not proven (--prove)");
}

std::string versions(const nlohmann::json& estimate) {
  std::string out;
  const auto add = [&](const char* label, const char* key) {
    const std::string value = text(estimate, key);
    if (!value.empty()) out += (out.empty() ? "" : ", ") + std::string(label) + value;
  };
  add("PyTorch ", "torch");
  add("cuDNN ", "cudnn");
  add("Python ", "python");
  return out;
}

std::string device_table(const nlohmann::json& devices) {
  char row[160];
  std::snprintf(row, sizeof row, "  %-8s %10s %10s %10s %10s\n", "device", "allocated", "reserved", "context", "need");
  std::string out = row;
  for (const auto& device : devices) {
    std::snprintf(row, sizeof row, "  %-8llu %10s %10s %10s %10s\n", static_cast<unsigned long long>(bytes(device, "device")),
                  format_size(bytes(device, "peak_allocated_bytes")).c_str(), format_size(bytes(device, "peak_reserved_bytes")).c_str(),
                  format_size(bytes(device, "context_bytes")).c_str(), format_size(bytes(device, "need_bytes")).c_str());
    out += row;
  }
  return out;
}

}  // namespace

std::string estimate_table(const nlohmann::json& estimate) {
  std::string out = headline(estimate);
  const bool has_figures = bytes(estimate, "need_bytes") > 0;
  if (has_figures) {
    const bool partial = text(estimate, "status") != "complete";
    const std::string so_far = partial ? " (until it ended)" : "";
    out += line("peak allocated", format_size(bytes(estimate, "peak_allocated_bytes")) + so_far);
    const std::uint64_t reserved = bytes(estimate, "peak_reserved_bytes"), lagging = bytes(estimate, "peak_reserved_lagging_bytes");
    const std::string lag = lagging > reserved ? ", up to " + format_size(lagging) + " where the GPU lags behind the program" : "";
    out += line("peak reserved", format_size(reserved) + so_far + orders_words(estimate) + lag);
    out += line("context", format_size(bytes(estimate, "context_bytes")));
    out += line("need", format_size(bytes(estimate, "need_bytes")) + (partial ? so_far : ", before any margin" + proof_words(estimate)));
    if (!partial) out += minimum_line(estimate);
  }
  const auto devices = estimate.find("devices");
  if (has_figures && devices != estimate.end() && devices->is_array() && devices->size() > 1) out += device_table(*devices);
  if (const std::string of = versions(estimate); !of.empty()) out += line("with", of);
  std::string took = format_duration(estimate.value("wall_s", 0.0));
  if (const std::uint64_t steps = bytes(estimate, "steps"); steps > 0) took += ", " + std::to_string(steps) + " optimizer steps";
  if (estimate.value("stopped_early", false)) took += ", ended early";
  out += line("took", took);
  if (const auto notes = estimate.find("notes"); notes != estimate.end() && notes->is_array()) {
    for (const auto& note : *notes) {
      if (note.is_string()) out += "  note: " + note.get<std::string>() + "\n";
    }
  }
  return out;
}

}  // namespace gpumem::cli
