// SPDX-License-Identifier: Apache-2.0
// What gpumem-probe is asked to do.
#include "estimator/probe/request.h"

#include <exception>
#include <utility>

#include "estimator/book/book.h"

namespace gpumem::probe {
namespace {

Error bad_request(const std::string& what) { return {ErrorKind::invalid_argument, "probe request: " + what}; }

constexpr std::pair<const char*, Method> kMethods[] = {
    {"virtual_gpu", Method::virtual_gpu}, {"xmem", Method::xmem}, {"auto", Method::automatic}};

Status check(const Request& request) {
  if (request.command.empty() == request.script_content.empty()) return bad_request("exactly one of command and script must be given");
  if (request.is_script() && request.script_content.substr(0, 2) != "#!") return bad_request("the script does not begin with #!");
  if (request.working_directory.empty() || request.working_directory[0] != '/') return bad_request("working_directory must be an absolute path");
  if (request.gpu_count < 1 || request.gpu_count > book::kMaxDevices) {
    return bad_request("gpu_count must be 1 to " + std::to_string(book::kMaxDevices));
  }
  if (request.timeout_s < 0 || request.cpu_limit < 0) return bad_request("timeout_s and cpu_limit must not be negative");
  if (request.epoch_batches < 0 || request.stable_steps < 1) return bad_request("epoch_batches must be 0 or more and stable_steps 1 or more");
  if (request.batch_percent < 1 || request.batch_percent > 100) return bad_request("batch_percent must be 1 to 100");
  for (const auto* path : {&request.record_directory, &request.snapshot_file}) {
    if (!path->empty() && (*path)[0] != '/') return bad_request("record and snapshot must be absolute paths");
  }
  for (const auto& variable : request.environment) {
    if (variable.find('=') == std::string::npos || variable[0] == '=') return bad_request("environment must hold NAME=VALUE");
  }
  return {};
}

}  // namespace

Result<Method> parse_method(const std::string& text) {
  for (const auto& [name, method] : kMethods) {
    if (text == name) return method;
  }
  return bad_request("method must be auto, virtual_gpu or xmem, not \"" + text + "\"");
}

const char* method_name(Method method) {
  for (const auto& [name, known] : kMethods) {
    if (method == known) return name;
  }
  return "";
}

Result<Request> parse_request(const std::string& text) {
  try {
    const auto object = nlohmann::json::parse(text);
    if (object.value("version", 0) != 1) return bad_request("version must be 1");
    Request request;
    if (object.contains("command")) request.command = object["command"].get<std::vector<std::string>>();
    if (object.contains("script")) {
      request.script_content = object["script"].value("content", "");
      request.script_arguments = object["script"].value("arguments", std::vector<std::string>{});
    }
    request.working_directory = object.value("working_directory", "");
    request.environment = object.value("environment", std::vector<std::string>{});
    auto gpu = gpus::parse_profile(object.value("gpu", nlohmann::json()), "");
    if (!gpu) return gpu.error();
    request.gpu = std::move(*gpu);
    request.gpu_count = object.value("gpu_count", request.gpu_count);
    request.capacity_bytes = object.value("capacity_bytes", request.capacity_bytes);
    request.timeout_s = object.value("timeout_s", request.timeout_s);
    request.memory_limit_bytes = object.value("memory_limit_bytes", request.memory_limit_bytes);
    request.cpu_limit = object.value("cpu_limit", request.cpu_limit);
    const std::string sandbox = object.value("sandbox", "required"), output = object.value("output", "inherit");
    if (sandbox != "required" && sandbox != "none") return bad_request("sandbox must be required or none");
    if (output != "inherit" && output != "tail") return bad_request("output must be inherit or tail");
    request.sandbox_required = sandbox == "required";
    request.keep_output = output == "tail";
    request.stop_when_stable = object.value("stop_when_stable", request.stop_when_stable);
    request.epoch_batches = object.value("epoch_batches", request.epoch_batches);
    request.stable_steps = object.value("stable_steps", request.stable_steps);
    request.prove = object.value("prove", request.prove);
    request.batch_percent = object.value("batch_percent", request.batch_percent);
    request.record_directory = object.value("record", "");
    request.snapshot_file = object.value("snapshot", "");
    auto method = parse_method(object.value("method", "virtual_gpu"));
    if (!method) return method.error();
    request.method = *method;
    if (auto checked = check(request); !checked) return checked.error();
    return request;
  } catch (const std::exception& error) {
    return bad_request(error.what());
  }
}

std::string to_text(const Request& request) {
  nlohmann::json object = {
      {"version", 1},
      {"working_directory", request.working_directory},
      {"environment", request.environment},
      {"gpu", gpus::to_json(request.gpu)},
      {"gpu_count", request.gpu_count},
      {"capacity_bytes", request.capacity_bytes},
      {"timeout_s", request.timeout_s},
      {"memory_limit_bytes", request.memory_limit_bytes},
      {"cpu_limit", request.cpu_limit},
      {"sandbox", request.sandbox_required ? "required" : "none"},
      {"stop_when_stable", request.stop_when_stable},
      {"epoch_batches", request.epoch_batches},
      {"stable_steps", request.stable_steps},
      {"prove", request.prove},
      {"batch_percent", request.batch_percent},
      {"record", request.record_directory},
      {"snapshot", request.snapshot_file},
      {"method", method_name(request.method)},
      {"output", request.keep_output ? "tail" : "inherit"},
  };
  if (request.is_script()) {
    object["script"] = {{"content", request.script_content}, {"arguments", request.script_arguments}};
  } else {
    object["command"] = request.command;
  }
  // Environments may hold bytes that are not UTF-8; they arrive with a replacement character rather than not at all.
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace gpumem::probe
