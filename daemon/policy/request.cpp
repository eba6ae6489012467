// SPDX-License-Identifier: Apache-2.0
// Reads a submission and tells one-GPU requests from everything else.
#include "daemon/policy/request.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "daemon/protocol/messages.h"

namespace gpumem::policy {
namespace {

namespace field = protocol::field;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::size_t start = 0;
  for (;;) {
    const std::size_t end = text.find(separator, start);
    parts.push_back(text.substr(start, end == std::string::npos ? end : end - start));
    if (end == std::string::npos) return parts;
    start = end + 1;
  }
}

// "gres:gpu:1" (Slurm up to 23.02) and "gres/gpu:1" (since) to "gpu:1".
std::string without_prefix(const std::string& item) {
  if (item.compare(0, 5, "gres:") == 0 || item.compare(0, 5, "gres/") == 0) return item.substr(5);
  return item;
}

// One way of asking for GPUs: how many, of which type.
struct Ask {
  std::uint64_t count = 0;
  std::string type;
  bool clear = false;  // understood
};

// What follows the name in "gpu:a100:1", "gpu=1", "gpu:1(S:0)": type and count, the count 1 by default.
Ask parse_type_and_count(const std::string& text) {
  Ask ask;
  ask.count = 1;
  ask.clear = true;
  if (text.empty()) return ask;
  const std::vector<std::string> parts = split(text, ':');
  if (parts.size() > 2) return {};
  std::string type = parts.size() == 2 ? parts[0] : std::string();
  std::string count = parts.back();
  // gpu:a100=1, as --tres-per-task writes it
  const std::size_t equals = count.find('=');
  if (equals != std::string::npos) {
    if (!type.empty()) return {};
    type = count.substr(0, equals);
    count = count.substr(equals + 1);
  }
  const auto number = option_number(count);
  if (number) {
    ask.count = *number;
    ask.type = type;
  } else if (parts.size() == 1 && equals == std::string::npos) {
    ask.type = count;
  } else {
    return {};
  }
  return ask;
}

bool is_gres(const std::string& item, const std::string& name, std::string* rest) {
  if (item == name) {
    rest->clear();
    return true;
  }
  if (item.size() <= name.size() || item.compare(0, name.size(), name) != 0) return false;
  if (item[name.size()] != ':' && item[name.size()] != '=') return false;
  *rest = item.substr(name.size() + 1);
  return true;
}

GpuRequest leave(GpuRequest request, const std::string& reason) {
  request.asked = Asked::something;
  request.reason = reason;
  return request;
}

// Every option that asks for GPUs, and what it says.
struct Asks {
  std::vector<Ask> gpus;
  std::string texts;
  bool shared = false;  // shard or mps by hand
  bool unclear = false;
  bool per_task = false;
  std::vector<std::string> other_gres;
};

void add_list(Asks& asks, const std::string& option, const std::string& value, bool is_gres_option) {
  bool relevant = false;
  std::string plain;  // as the user wrote it, before Slurm put its prefixes in
  for (const std::string& raw : split(value, ',')) {
    const std::string item = without_prefix(raw);
    std::string rest;
    plain += (plain.empty() ? "" : ",") + item;
    if (item.empty() || item == "none") continue;
    if (is_gres(item, "gpu", &rest)) {
      asks.gpus.push_back(parse_type_and_count(rest));
      asks.unclear |= !asks.gpus.back().clear;
      relevant = true;
    } else if (is_gres(item, "shard", &rest) || is_gres(item, "mps", &rest)) {
      asks.shared = true;
      relevant = true;
    } else if (is_gres_option) {
      asks.other_gres.push_back(item);
    }
  }
  if (!relevant) return;
  asks.texts += (asks.texts.empty() ? "--" : " --") + option + "=" + plain;
}

void add_count(Asks& asks, const std::string& option, const std::string& value) {
  if (value.empty()) return;
  asks.gpus.push_back(parse_type_and_count(value));
  asks.unclear |= !asks.gpus.back().clear;
  asks.texts += (asks.texts.empty() ? "--" : " --") + option + "=" + value;
}

Asks collect(const Request& request) {
  Asks asks;
  if (request.has("gres")) add_list(asks, "gres", request.option("gres"), true);
  add_count(asks, "gpus", request.option("gpus"));
  add_count(asks, "gpus-per-node", request.option("gpus-per-node"));
  const std::string per_task = request.option("gpus-per-task");
  const std::string tres_per_task = request.option("tres-per-task");
  if (!per_task.empty()) {
    add_count(asks, "gpus-per-task", per_task);
    asks.per_task = true;
  } else if (!tres_per_task.empty()) {
    const std::size_t before = asks.gpus.size();
    add_list(asks, "tres-per-task", tres_per_task, false);
    asks.per_task = asks.gpus.size() > before;
  }
  add_count(asks, "gpus-per-socket", request.option("gpus-per-socket"));
  return asks;
}

// Options beside the GPUs that make a request something else. Empty: none.
std::string other_obstacle(const Request& request, const Asks& asks) {
  if (request.inside_job) return "it runs inside a job's allocation";
  if (request.heterogeneous) return "it is part of a heterogeneous job";
  if (request.has("gpus-per-socket")) return "--gpus-per-socket is set";
  const std::string exclusive = request.option("exclusive");
  if (!exclusive.empty() && exclusive != "no") return "--exclusive asks for a whole node";
  if (request.has("gpu-freq")) return "--gpu-freq sets the clock of a whole GPU";
  if (request.has("ntasks-per-gpu")) return "--ntasks-per-gpu is set";
  if (request.option("gres-flags").find("enforce-binding") != std::string::npos) return "--gres-flags=enforce-binding is set";
  const std::string nodes = request.option("nodes");
  if (!nodes.empty() && nodes != "1" && nodes != "1-1") return "it may use several nodes";
  const std::uint64_t tasks = task_count(request);
  if (tasks > 1 && asks.per_task) return "it asks for a GPU for each of several tasks";
  if (tasks > 1 && nodes.empty()) return "its tasks may use several nodes";
  return {};
}

}  // namespace

std::string Request::option(const std::string& name) const {
  const auto found = options.find(name);
  if (found == options.end() || found->second == "unset" || found->second == "(null)") return {};
  return found->second;
}

std::string Request::script_name() const {
  if (is_wrap) return "wrap";
  if (script_path.empty()) return command;
  const std::size_t slash = script_path.rfind('/');
  return slash == std::string::npos ? script_path : script_path.substr(slash + 1);
}

Result<Request> parse_request(const protocol::Message& message) {
  Request request;
  request.command = message.get(field::kCommand);
  if (request.command != "sbatch" && request.command != "salloc" && request.command != "srun") {
    return Error{ErrorKind::protocol, "decide: '" + request.command + "' is not a command that gpumem knows"};
  }
  const std::string mode(message.get(field::kMode));
  if (mode.empty() || mode == protocol::kModeAuto) {
    request.wish = Wish::automatic;
  } else if (mode == protocol::kModeOff) {
    request.wish = Wish::off;
  } else {
    const auto bytes = message.get_number(field::kMode);
    // 2^50: no device comes near, and sums of limits and margins cannot overflow.
    if (!bytes || *bytes == 0 || *bytes > (1ull << 50)) {
      return Error{ErrorKind::protocol, "decide: mode '" + mode.substr(0, 40) + "' is neither auto, off nor a number of bytes"};
    }
    request.wish = Wish::size;
    request.size_bytes = *bytes;
  }
  request.slurm_version = message.get(field::kSlurmVersion);
  request.working_directory = message.get(field::kWorkingDirectory);
  request.script_path = message.get(field::kScriptPath);
  if (message.has(field::kScript)) {
    request.script = std::string(message.get(field::kScript));
  } else if (message.has(field::kWrap)) {
    // What sbatch itself makes of --wrap.
    request.script = "#!/bin/sh\n# This script was created by sbatch --wrap.\n\n" + std::string(message.get(field::kWrap)) + "\n";
    request.is_wrap = true;
  }
  request.arguments = message.get_all(field::kArgument);
  request.environment = message.get_all(field::kEnvironment);
  const std::string_view prefix = field::kOptionPrefix;
  for (const auto& [name, value] : message.fields()) {
    if (name.size() > prefix.size() && name.compare(0, prefix.size(), prefix) == 0) {
      request.options[name.substr(prefix.size())] = value;
    }
  }
  const std::string inside = std::string(message.get(field::kInsideJob));
  request.inside_job = !inside.empty() && inside != "0";
  request.heterogeneous = message.get(field::kHeterogeneous) == "1";
  request.deadline_s = message.get_real(field::kDeadline).value_or(0);
  return request;
}

GpuRequest classify(const Request& request) {
  Asks asks = collect(request);
  GpuRequest result;
  result.text = asks.texts;
  result.other_gres = std::move(asks.other_gres);
  if (asks.gpus.empty() && !asks.shared) return result;
  const bool none_asked = !asks.shared && !asks.unclear &&
                          std::all_of(asks.gpus.begin(), asks.gpus.end(), [](const Ask& ask) { return ask.count == 0; });
  if (none_asked) return result;
  if (asks.shared) return leave(result, "it asks for shards or MPS itself");
  if (asks.unclear) return leave(result, "'" + asks.texts + "' is not a GPU request that gpumem knows");
  std::string type;
  for (const Ask& ask : asks.gpus) {
    if (ask.count > 1) return leave(result, "it asks for several GPUs");
    if (ask.count == 0 || (!type.empty() && !ask.type.empty() && ask.type != type)) {
      return leave(result, "its GPU options contradict each other");
    }
    if (!ask.type.empty()) type = ask.type;
  }
  // --gres=gpu:a:1,gpu:b:1 is two GPUs; --gres=gpu:1 --gpus=1 is one, said twice.
  const std::string gres = request.option("gres");
  const std::vector<std::string> items = split(gres, ',');
  std::string rest;
  const auto gpu_items = std::count_if(items.begin(), items.end(),
                                       [&](const std::string& item) { return is_gres(without_prefix(item), "gpu", &rest); });
  const std::vector<std::string> counted = split(request.option("gpus"), ',');
  if (gpu_items > 1 || counted.size() > 1) return leave(result, "it asks for several GPUs");
  const std::string obstacle = other_obstacle(request, asks);
  if (!obstacle.empty()) return leave(result, obstacle);
  result.asked = Asked::one_gpu;
  result.type = type;
  return result;
}

std::optional<std::uint64_t> option_number(const std::string& text) {
  std::uint64_t number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::uint64_t task_count(const Request& request) {
  const auto tasks = option_number(request.option("ntasks"));
  const auto per_node = option_number(request.option("ntasks-per-node"));
  return std::max<std::uint64_t>({1, tasks.value_or(1), per_node.value_or(1)});
}

unsigned slurm_release(const std::string& version) {
  unsigned year = 0, month = 0;
  const char* end = version.data() + version.size();
  const auto first = std::from_chars(version.data(), end, year);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '.') return 0;
  if (std::from_chars(first.ptr + 1, end, month).ec != std::errc() || month > 99 || year > 99) return 0;
  return year * 100 + month;
}

}  // namespace gpumem::policy
