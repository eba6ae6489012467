// SPDX-License-Identifier: Apache-2.0
// The daemon's JSON as text for people.
#include "cli/tables.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/clock.h"
#include "base/size.h"

namespace gpumem::cli {
namespace {

constexpr char kNone[] = "-";

const Json& at(const Json& object, const char* key) {
  static const Json null;
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found == object.end() ? null : *found;
}

std::string text(const Json& object, const char* key) {
  const Json& value = at(object, key);
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return kNone;
  return value.dump();
}

std::string size(const Json& object, const char* key) {
  const Json& value = at(object, key);
  return value.is_number() ? format_size(value.get<std::uint64_t>()) : kNone;
}

std::string mib_size(const Json& object, const char* key) {
  const Json& value = at(object, key);
  return value.is_number() ? format_size(value.get<std::uint64_t>() * kMiB) : kNone;
}

std::string time_of(const Json& object, const char* key) {
  const Json& value = at(object, key);
  return value.is_number() ? format_local_time(value.get<double>()) : kNone;
}

std::string number(double value) {
  char out[40];
  std::snprintf(out, sizeof out, "%.4g", value);
  return out;
}

std::string percent(const Json& value) { return value.is_number() ? number(value.get<double>()) + "%" : kNone; }

// "NVIDIA GeForce RTX 3060" is long, and every model begins alike.
std::string short_gpu(const std::string& gpu) {
  std::string out = gpu;
  for (const char* prefix : {"NVIDIA ", "GeForce "}) {
    if (out.rfind(prefix, 0) == 0) out.erase(0, std::string(prefix).size());
  }
  return out;
}

std::string outcome(const Json& row) {
  std::string words = text(row, "outcome");
  std::replace(words.begin(), words.end(), '_', ' ');
  if (at(row, "virtual") == true) words += " (virtual)";
  return words;
}

std::string joined(const Json& list) {
  std::string out;
  if (!list.is_array()) return kNone;
  for (const auto& item : list) out += (out.empty() ? "" : ", ") + (item.is_string() ? item.get<std::string>() : item.dump());
  return out.empty() ? kNone : out;
}

std::size_t width_of(const std::string& cell) {
  return static_cast<std::size_t>(std::count_if(cell.begin(), cell.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

// "label       value" lines under a heading; lines without a value are left out.
class Sheet {
 public:
  void line(const std::string& label, const std::string& value) {
    if (value.empty() || value == kNone) return;
    char head[40];
    std::snprintf(head, sizeof head, "  %-18s ", label.c_str());
    out_ += head + value + "\n";
  }
  void heading(const std::string& words) { out_ += (out_.empty() ? "" : "\n") + words + "\n"; }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

void show_decision(Sheet& sheet, const Json& decision) {
  sheet.heading("Decision " + text(decision, "token"));
  sheet.line("submitted", time_of(decision, "submitted_s") + " by " + text(decision, "user") + " with " + text(decision, "command"));
  sheet.line("script", text(decision, "name"));
  sheet.line("command line", text(decision, "command_line"));
  sheet.line("directory", text(decision, "working_directory"));
  sheet.line("requested", text(decision, "requested"));
  sheet.line("partition", text(decision, "partition"));
  sheet.line("account", text(decision, "account"));
  if (text(decision, "pool") != kNone) sheet.line("pool", text(decision, "pool") + " (mode " + text(decision, "mode") + ")");
  sheet.line("GPU", text(decision, "gpu"));
  sheet.line("rule", text(decision, "rule"));
  sheet.line("need", size(decision, "need_bytes"));
  if (at(decision, "limit_mib").is_number()) {
    const double margin = at(decision, "margin_bytes").is_number() ? at(decision, "margin_bytes").get<double>() : 0;
    if (margin > 0) {
      const bool own = at(decision, "margin_id").is_number() && at(decision, "margin_id").get<std::int64_t>() != 0;
      sheet.line("margin", size(decision, "margin_bytes") + " (" + percent(at(decision, "margin_percent")) +
                               (own ? ", margin " + text(decision, "margin_id") : ", the default") + ")");
    }
    sheet.line("limit", mib_size(decision, "limit_mib"));
  }
  sheet.line("action", text(decision, "action") == "rewrite" ? "submitted with --gres=" + text(decision, "gres") : "submitted as it was");
  sheet.line("reason", text(decision, "reason"));
  sheet.line("told the user", text(decision, "line"));
  sheet.line("fingerprint", text(decision, "fingerprint"));
}

void show_estimate(Sheet& sheet, const Json& estimate) {
  sheet.heading("Estimate");
  sheet.line("status", text(estimate, "status"));
  sheet.line("error", text(estimate, "error"));
  sheet.line("confidence", text(estimate, "confidence"));
  sheet.line("method", text(estimate, "method"));
  sheet.line("peak allocated", size(estimate, "peak_allocated_bytes"));
  sheet.line("peak reserved", size(estimate, "peak_reserved_bytes"));
  sheet.line("minimum limit", size(estimate, "minimum_limit_bytes"));
  sheet.line("context", size(estimate, "context_bytes"));
  sheet.line("need", size(estimate, "need_bytes"));
  sheet.line("torch", text(estimate, "torch"));
  sheet.line("cuDNN", text(estimate, "cudnn"));
  sheet.line("optimizer steps", text(estimate, "steps"));
  if (at(estimate, "wall_s").is_number()) sheet.line("took", format_duration(at(estimate, "wall_s").get<double>()));
  if (at(estimate, "missing_functions").is_array() && !at(estimate, "missing_functions").empty()) {
    sheet.line("missing", joined(at(estimate, "missing_functions")));
  }
  if (at(estimate, "notes").is_array()) {
    for (const auto& note : at(estimate, "notes")) sheet.line("note", note.is_string() ? note.get<std::string>() : note.dump());
  }
}

void show_job(Sheet& sheet, const Json& job) {
  sheet.heading("Job " + text(job, "job") + " on " + text(job, "node") +
                (at(job, "run").is_number() && at(job, "run").get<int>() > 1 ? " (run " + text(job, "run") + ")" : ""));
  sheet.line("user", text(job, "user"));
  sheet.line("started", time_of(job, "started_s"));
  sheet.line("ended", time_of(job, "ended_s"));
  if (at(job, "runtime_s").is_number()) sheet.line("ran", format_duration(at(job, "runtime_s").get<double>()));
  std::string gpu = text(job, "gpu");
  if (at(job, "device_index").is_number()) gpu = "GPU " + text(job, "device_index") + (gpu == kNone ? "" : ": " + gpu);
  sheet.line("GPU", gpu + (at(job, "virtual") == true ? " (virtual)" : ""));
  const std::string limit = mib_size(job, "limit_mib");
  sheet.line("limit", limit == kNone ? "none (whole GPU)" : limit + (at(job, "enforced") == true ? "" : " (not enforced)"));
  sheet.line("measured peak", size(job, "measured_peak_bytes"));
  if (at(job, "context_bytes").is_number() && at(job, "context_bytes").get<std::uint64_t>() > 0) {
    sheet.line("of it context", size(job, "context_bytes"));
  }
  if (at(job, "out_of_memory_count").is_number() && at(job, "out_of_memory_count").get<std::uint64_t>() > 0) {
    sheet.line("refused", text(job, "out_of_memory_count") + " times, last a request of " + size(job, "out_of_memory_bytes"));
  }
  sheet.line("outcome", outcome(job));
  sheet.line("exit status", text(job, "exit_status"));
  sheet.line("signal", text(job, "signal"));
  sheet.line("note", text(job, "note"));
}

}  // namespace

std::string format_table(const std::vector<std::string>& heads, const std::vector<std::vector<std::string>>& rows,
                         const std::string& right) {
  std::vector<std::size_t> widths;
  for (std::size_t column = 0; column < heads.size(); ++column) {
    std::size_t width = width_of(heads[column]);
    for (const auto& row : rows) width = std::max(width, width_of(row[column]));
    widths.push_back(width);
  }
  std::string out;
  auto add = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (std::size_t column = 0; column < cells.size(); ++column) {
      const std::string blanks(widths[column] - width_of(cells[column]), ' ');
      const bool to_the_right = (" " + right + " ").find(" " + heads[column] + " ") != std::string::npos;
      line += (column == 0 ? "" : "  ") + (to_the_right ? blanks + cells[column] : cells[column] + blanks);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  };
  add(heads);
  for (const auto& row : rows) add(row);
  return out;
}

std::string format_history(const Json& answer) {
  const Json& rows = at(answer, "rows");
  if (!rows.is_array() || rows.empty()) return "No jobs in the history.\n";
  std::vector<std::vector<std::string>> cells;
  for (const auto& row : rows) {
    std::string job = text(row, "job");
    if (at(row, "run").is_number() && at(row, "run").get<int>() > 1) job += " run " + text(row, "run");
    std::string submitted = time_of(row, "submitted_s");
    if (submitted == kNone) submitted = time_of(row, "started_s");
    std::string limit = size(row, "limit_bytes");
    if (limit == kNone && at(row, "job").is_string()) limit = "whole GPU";
    const Json& ratio = at(row, "ratio");
    char ratio_text[32] = "-";
    if (ratio.is_number()) std::snprintf(ratio_text, sizeof ratio_text, "%.2f", ratio.get<double>());
    std::string rule = text(row, "rule");
    std::replace(rule.begin(), rule.end(), '_', ' ');
    cells.push_back({job, text(row, "user"), text(row, "name"), submitted, short_gpu(text(row, "gpu")), size(row, "estimate_bytes"),
                     limit, size(row, "measured_peak_bytes"), ratio_text, rule, outcome(row)});
  }
  return format_table({"JOB", "USER", "NAME", "SUBMITTED", "GPU", "ESTIMATE", "LIMIT", "MEASURED", "RATIO", "RULE", "OUTCOME"}, cells,
                      "ESTIMATE LIMIT MEASURED RATIO");
}

std::string format_show(const Json& answer) {
  Sheet sheet;
  std::string shown;
  if (!at(answer, "entries").is_array()) return {};
  for (const auto& entry : at(answer, "entries")) {
    const Json& decision = at(entry, "decision");
    if (at(entry, "job").is_object()) show_job(sheet, at(entry, "job"));
    // Array tasks and requeues share a decision: it is shown once.
    if (!decision.is_object() || text(decision, "token") == shown) continue;
    shown = text(decision, "token");
    show_decision(sheet, decision);
    if (at(decision, "estimate").is_object()) show_estimate(sheet, at(decision, "estimate"));
  }
  return sheet.take();
}

std::string format_status(const Json& answer, double now_s) {
  const Json& daemon = at(answer, "daemon");
  std::string out = "gpumemd " + text(daemon, "version") + ", pid " + text(daemon, "pid");
  if (at(daemon, "started_s").is_number()) {
    out += ", up " + format_duration(std::max(0.0, now_s - at(daemon, "started_s").get<double>()));
  }
  out += "\nroles: " + joined(at(daemon, "roles")) + "\n";
  const Json& probes = at(answer, "probes");
  out += "probes: " + text(probes, "running") + " running, " + text(probes, "waiting") + " waiting (at once: " + text(probes, "at_once") + ")\n";

  std::vector<std::vector<std::string>> rows;
  auto section = [&](const std::vector<std::string>& heads, const std::string& right) {
    if (!rows.empty()) out += "\n" + format_table(heads, rows, right);
    rows.clear();
  };
  if (at(answer, "pools").is_array()) {
    for (const auto& pool : at(answer, "pools")) {
      const std::string partitions = joined(at(pool, "partitions"));
      rows.push_back({text(pool, "name"), text(pool, "mode"), partitions == kNone ? "all" : partitions, joined(at(pool, "gpus"))});
    }
  }
  section({"POOL", "MODE", "PARTITIONS", "GPUS"}, "");
  if (at(answer, "devices").is_array()) {
    for (const auto& device : at(answer, "devices")) {
      rows.push_back({text(device, "index"), text(device, "gpu") + (at(device, "virtual") == true ? " (virtual)" : ""), text(device, "jobs"),
                      size(device, "used_bytes"), size(device, "limits_bytes"), size(device, "usable_bytes")});
    }
  }
  section({"DEVICE", "GPU", "JOBS", "USED", "LIMITS", "MEMORY"}, "DEVICE JOBS USED LIMITS MEMORY");
  if (at(answer, "jobs").is_array()) {
    for (const auto& job : at(answer, "jobs")) {
      const Json& started = at(job, "started_s");
      const std::string limit = size(job, "limit_bytes");
      rows.push_back({text(job, "job"), text(job, "user"), text(job, "name"), text(job, "node"), text(job, "device_index"),
                      size(job, "used_bytes"), size(job, "measured_peak_bytes"), limit == kNone ? "whole GPU" : limit,
                      started.is_number() ? format_duration(std::max(0.0, now_s - started.get<double>())) : kNone});
    }
  }
  section({"JOB", "USER", "NAME", "NODE", "DEVICE", "USED", "PEAK", "LIMIT", "RUNNING"}, "DEVICE USED PEAK LIMIT RUNNING");
  return out;
}

std::string format_scope(const Json& margin) {
  std::string out;
  for (const char* key : {"pool", "gpu", "user", "account", "rule"}) {
    if (at(margin, key).is_string()) out += (out.empty() ? "" : ", ") + std::string(key) + " " + text(margin, key);
  }
  return out.empty() ? "everything" : out;
}

std::string format_margins(const Json& answer) {
  const Json& standard = at(answer, "default");
  std::string out = "default: " + percent(at(standard, "percent")) + " of the need, at least " + size(standard, "floor_bytes") + " (gpumem.conf)\n";
  std::vector<std::vector<std::string>> rows;
  if (at(answer, "margins").is_array()) {
    for (const auto& margin : at(answer, "margins")) {
      rows.push_back({format_scope(margin), percent(at(margin, "percent")), size(margin, "floor_bytes"), text(margin, "set_by"), time_of(margin, "set_s")});
    }
  }
  if (!rows.empty()) out += "\n" + format_table({"FOR", "MARGIN", "FLOOR", "SET BY", "SET"}, rows, "MARGIN FLOOR");
  rows.clear();
  if (at(answer, "changes").is_array()) {
    for (const auto& change : at(answer, "changes")) {
      auto value = [&](const char* percent_key, const char* floor_key) {
        return at(change, percent_key).is_number() ? percent(at(change, percent_key)) + ", " + size(change, floor_key) : std::string("unset");
      };
      rows.push_back({time_of(change, "at_s"), text(change, "by"), format_scope(change), value("percent_before", "floor_bytes_before"),
                      value("percent_after", "floor_bytes_after")});
    }
  }
  if (!rows.empty()) out += "\n" + format_table({"CHANGED", "BY", "FOR", "FROM", "TO"}, rows, "");
  return out;
}

}  // namespace gpumem::cli
