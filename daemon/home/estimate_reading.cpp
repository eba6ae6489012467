// SPDX-License-Identifier: Apache-2.0
// Checks and shortens an estimate.
#include "daemon/home/estimate_reading.h"

#include <nlohmann/json.hpp>

namespace gpumem::home {
namespace {

using nlohmann::json;

// More would make every repeated submission slower than a cached answer may be.
constexpr std::size_t kMostFiles = 4096;
constexpr std::size_t kOutputTailBytes = 4096;
constexpr std::size_t kSentenceBytes = 600;
// No device comes near; sums stay far from overflow.
constexpr double kLargestNeed = 1e15;

std::string text_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

double number_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

std::string one_line(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  if (text.size() > kSentenceBytes) text.resize(kSentenceBytes);
  while (!text.empty() && (text.back() == '.' || text.back() == ' ')) text.pop_back();
  return text;
}

void read_files(const json& object, EstimateReading& reading) {
  const auto files = object.find("files");
  if (files == object.end() || !files->is_array() || files->size() > kMostFiles) return;
  for (const json& item : *files) {
    if (item.is_string() && item.get_ref<const std::string&>().rfind('/', 0) == 0) reading.paths.push_back(item.get<std::string>());
  }
}

Result<EstimateReading> read(json object) {
  EstimateReading reading;
  reading.status = text_of(object, "status");
  reading.reason = text_of(object, "reason").substr(0, 64);
  reading.error = one_line(text_of(object, "error"));
  const double need = number_of(object, "need_bytes");
  if (need > 0 && need < kLargestNeed) reading.need_bytes = static_cast<std::uint64_t>(need);
  reading.wall_s = number_of(object, "wall_s");
  const bool known_status = reading.status == "complete" || reading.status == "out_of_memory" || reading.status == "timeout" ||
                            reading.status == "failed" || reading.status == "unsupported";
  if (!known_status) return Error{ErrorKind::protocol, "the probe's answer has no status that gpumemd knows"};
  if (reading.status == "complete" && reading.need_bytes == 0) {
    return Error{ErrorKind::protocol, "the probe says that its estimate is complete, but gives no need"};
  }
  read_files(object, reading);
  object.erase("files");
  const std::string tail = text_of(object, "output_tail");
  if (tail.size() > kOutputTailBytes) object["output_tail"] = tail.substr(tail.size() - kOutputTailBytes);
  reading.stored_json = object.dump(-1, ' ', false, json::error_handler_t::replace);
  return reading;
}

}  // namespace

Result<EstimateReading> read_estimate(const std::string& text) {
  json object = json::parse(text, nullptr, false);
  if (!object.is_object()) return Error{ErrorKind::protocol, "the probe's answer is not a JSON object"};
  return read(std::move(object));
}

}  // namespace gpumem::home
