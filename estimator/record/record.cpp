// SPDX-License-Identifier: Apache-2.0
// Reads what a probe's processes wrote down.
#include "estimator/record/record.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <exception>

#include "base/file.h"

namespace gpumem::record {
namespace {

// A probe of thousands of steps writes less than a megabyte; a program that writes here itself must not fill memory.
constexpr std::size_t kLargestFile = 32u << 20;
constexpr std::size_t kMostFiles = 4096;
constexpr std::size_t kMostNotes = 200;
constexpr std::size_t kMostOpenedFiles = 10000;
constexpr std::size_t kMostAddresses = 4u << 20;  // of all lists of a process
constexpr std::size_t kLongestText = 2000;
constexpr std::size_t kMostMemoryChanges = 1u << 18;         // the virtual GPU stops earlier
constexpr std::uint64_t kMostDeviceBytes = std::uint64_t{1} << 46;  // more than any device has: sums of so many lines do not overflow
constexpr std::size_t kLargestShape = 1024, kMostLookedAt = 4096, kMostLoaders = 256, kMostBatchMarks = 1u << 16;  // of batches

std::string text_of(const nlohmann::json& event, const char* key) {
  const auto found = event.find(key);
  if (found == event.end() || !found->is_string()) return "";
  return found->get<std::string>().substr(0, kLongestText);
}

std::uint64_t number_of(const nlohmann::json& event, const char* key) {
  const auto found = event.find(key);
  return found != event.end() && found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
}

void read_devices(const nlohmann::json& event, Process& process) {
  const auto devices = event.find("devices");
  if (devices == event.end() || !devices->is_object()) return;
  for (const auto& [name, figures] : devices->items()) {
    char* end = nullptr;
    const long device = std::strtol(name.c_str(), &end, 10);
    if (end == name.c_str() || *end != '\0' || device < 0 || device > 1023 || !figures.is_object()) continue;
    DevicePeaks& peaks = process.devices[static_cast<int>(device)];
    peaks.allocated_bytes = std::max(peaks.allocated_bytes, number_of(figures, "peak_allocated"));
    peaks.reserved_bytes = std::max(peaks.reserved_bytes, number_of(figures, "peak_reserved"));
    peaks.allocated_is_older = false;
  }
}

void read_torch(const nlohmann::json& event, Process& process) {
  process.imported_torch = true;
  process.torch = text_of(event, "version");
  process.cuda = text_of(event, "cuda");
  process.python = text_of(event, "python");
  process.tracer = text_of(event, "tracer");
  process.cudnn = static_cast<int>(std::min<std::uint64_t>(number_of(event, "cudnn"), 10000000));
  const auto arguments = event.find("argv");
  if (arguments == event.end() || !arguments->is_array()) return;
  process.arguments.clear();
  for (const auto& argument : *arguments) {
    if (argument.is_string()) process.arguments.push_back(argument.get<std::string>().substr(0, kLongestText));
  }
}

std::vector<std::uint64_t> addresses_of(const nlohmann::json& event, const char* key) {
  std::vector<std::uint64_t> addresses;
  const auto found = event.find(key);
  if (found == event.end() || !found->is_array()) return addresses;
  for (const auto& address : *found) {
    if (address.is_number_unsigned()) addresses.push_back(address.get<std::uint64_t>());
  }
  return addresses;
}

void read_tensors(const nlohmann::json& event, Process& process) {
  TensorList list{number_of(event, "n"), static_cast<int>(std::min<std::uint64_t>(number_of(event, "device"), 1023)),
                  addresses_of(event, "parameter"), addresses_of(event, "buffer"), addresses_of(event, "gradient"),
                  addresses_of(event, "state")};
  std::size_t addresses = list.parameters.size() + list.buffers.size() + list.gradients.size() + list.states.size();
  for (const auto& known : process.tensors) {
    addresses += known.parameters.size() + known.buffers.size() + known.gradients.size() + known.states.size();
  }
  if (addresses <= kMostAddresses) process.tensors.push_back(std::move(list));
}

// [[8, 128], [8]] is {2, 8, 128, 1, 8}; nullopt where it is no such list.
std::optional<BatchShape> shape_of(const nlohmann::json& tensors) {
  if (!tensors.is_array()) return std::nullopt;
  BatchShape shape;
  for (const auto& tensor : tensors) {
    if (!tensor.is_array() || shape.size() + tensor.size() > kLargestShape) return std::nullopt;
    shape.push_back(static_cast<std::uint32_t>(tensor.size()));
    for (const auto& size : tensor) {
      if (!size.is_number_unsigned()) return std::nullopt;
      shape.push_back(static_cast<std::uint32_t>(std::min<std::uint64_t>(size.get<std::uint64_t>(), UINT32_MAX)));
    }
  }
  return shape;
}

void read_batches(const nlohmann::json& event, Process& process) {
  const auto shapes = event.find("shapes");
  if (shapes == event.end() || !shapes->is_array() || shapes->size() > kMostLookedAt || process.batches.size() >= kMostLoaders) return;
  auto& batches = process.batches[number_of(event, "loader")];
  for (const auto& tensors : *shapes) {
    if (auto shape = shape_of(tensors)) batches.push_back(std::move(*shape));
  }
}

void read_event(const nlohmann::json& event, Process& process) {
  const std::string name = text_of(event, "event");
  if (name == "torch") {
    read_torch(event, process);
  } else if (name == "step") {
    process.steps = std::max(process.steps, number_of(event, "n"));
    read_devices(event, process);
  } else if (name == "stop") {
    process.steps = std::max(process.steps, number_of(event, "n"));
    process.stop_reason = text_of(event, "reason");
    process.error = text_of(event, "error");
    read_devices(event, process);
  } else if (name == "peak") {
    DevicePeaks& peaks = process.devices[static_cast<int>(std::min<std::uint64_t>(number_of(event, "device"), 1023))];
    if (number_of(event, "reserved") > peaks.reserved_bytes) peaks.allocated_is_older = !event.contains("allocated");
    peaks.reserved_bytes = std::max(peaks.reserved_bytes, number_of(event, "reserved"));
    peaks.allocated_bytes = std::max(peaks.allocated_bytes, number_of(event, "allocated"));
  } else if (name == "note") {
    if (process.notes.size() < kMostNotes) process.notes.push_back({text_of(event, "kind"), text_of(event, "text")});
  } else if (name == "cudnn") {
    process.planner = text_of(event, "planner");
  } else if (name == "ranks") {
    process.rank = static_cast<int>(std::min<std::uint64_t>(number_of(event, "rank"), 1 << 20));
    process.world_size = static_cast<int>(std::min<std::uint64_t>(number_of(event, "world_size"), 1 << 20));
  } else if (name == "file") {
    if (process.files.size() < kMostOpenedFiles) process.files.push_back(text_of(event, "path"));
  } else if (name == "allocator") {
    process.knows_allocator = true;
    if (event.contains("cuda_alloc_conf") && event["cuda_alloc_conf"].is_string()) process.cuda_alloc_conf = text_of(event, "cuda_alloc_conf");
    if (event.contains("alloc_conf") && event["alloc_conf"].is_string()) process.alloc_conf = text_of(event, "alloc_conf");
  } else if (name == "tensors") {
    read_tensors(event, process);
  } else if (name == "batches") {
    read_batches(event, process);
  } else if (name == "batch") {
    if (process.batch_marks.size() >= kMostBatchMarks) return;
    process.batch_marks.push_back({number_of(event, "n"), number_of(event, "loader"), shape_of(event.value("shapes", nlohmann::json()))});
  } else if (const std::uint64_t number = number_of(event, "n"); number > 0 && number <= 65535) {
    if (name == "operator") process.operators[static_cast<std::uint16_t>(number)] = text_of(event, "name");
    if (name == "module") process.modules[static_cast<std::uint16_t>(number)] = {text_of(event, "path"), text_of(event, "type")};
  }
  // Other events are of a newer shim.
}

// The file's beginning. Only regular files: a pipe put here by the program would hold us for ever.
std::string read_bounded(const std::string& path) {
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat found {};
  if (!file.valid() || ::fstat(file.get(), &found) != 0 || !S_ISREG(found.st_mode)) return "";
  std::string text;
  char buffer[65536];
  ssize_t count;
  while (text.size() < kLargestFile && ((count = ::read(file.get(), buffer, sizeof buffer)) > 0 || (count < 0 && errno == EINTR))) {
    if (count > 0) text.append(buffer, static_cast<std::size_t>(count));
  }
  return text;
}

pid_t pid_in_name(const std::string& name, const char* kind) {
  const std::size_t dash = name.rfind('-');
  return name.starts_with(kind) ? std::atoi(name.c_str() + dash + 1) : 0;
}

// Calls `take` with each line's object and returns how many lines were none.
template <class Take>
std::uint64_t for_each_line(const std::string& text, const Take& take) {
  std::uint64_t bad_lines = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    if (line.empty()) continue;
    const auto event = nlohmann::json::parse(line, nullptr, false);
    if (event.is_discarded() || !event.is_object()) ++bad_lines;
    else take(event);
  }
  return bad_lines;
}

// False: no such line.
bool read_memory_change(const nlohmann::json& event, MemoryLog& log) {
  if (text_of(event, "event") == "memory_cut") log.cut = true;
  if (text_of(event, "event") != "memory") return true;  // of a newer virtual GPU
  MemoryChange change;
  change.unix_ns = number_of(event, "unix_ns");
  change.address = number_of(event, "address");
  change.handle = number_of(event, "handle");
  change.device = static_cast<int>(std::min<std::uint64_t>(number_of(event, "device"), 1023));
  if (event.contains("handle")) {
    change.kind = MemoryChange::Kind::mapped;
  } else {
    const bool taken = event.contains("taken_bytes");
    change.kind = taken ? MemoryChange::Kind::taken : MemoryChange::Kind::returned;
    change.bytes = number_of(event, taken ? "taken_bytes" : "returned_bytes");
    if (change.bytes == 0 || change.bytes > kMostDeviceBytes) return false;
  }
  if (log.changes.size() >= kMostMemoryChanges) return false;
  log.changes.push_back(change);
  return true;
}

}  // namespace

void read_process_lines(const std::string& text, Process& process) {
  process.bad_lines += for_each_line(text, [&](const nlohmann::json& event) { read_event(event, process); });
}

void read_memory_lines(const std::string& text, MemoryLog& log) {
  const std::uint64_t bad_lines = for_each_line(text, [&](const nlohmann::json& event) {
    if (!read_memory_change(event, log)) log.cut = true;
  });
  // A process that is killed leaves its last line half written: what that said is not known.
  if (bad_lines > 0) log.cut = true;
}

Result<Record> read_record(const std::string& directory) {
  Record record;
  DIR* listing = ::opendir(directory.c_str());
  if (listing == nullptr && errno == ENOENT) return record;
  if (listing == nullptr) return errno_error("cannot read the record " + directory);
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(listing)) {
    const std::string name = entry->d_name;
    if (name.ends_with(".jsonl") && names.size() < kMostFiles) names.push_back(name);
  }
  ::closedir(listing);
  for (const auto& name : names) {
    if (const pid_t pid = pid_in_name(name, "memory-"); pid > 0) {
      MemoryLog& log = record.memory[pid];
      try {
        read_memory_lines(read_bounded(directory + "/" + name), log);
      } catch (const std::exception&) {
        log.cut = true;
      }
      continue;
    }
    Process process;
    process.pid = pid_in_name(name, "process-");
    try {
      read_process_lines(read_bounded(directory + "/" + name), process);
    } catch (const std::exception&) {  // out of memory in the JSON library: what was read so far is kept
      ++process.bad_lines;
    }
    record.processes.push_back(std::move(process));
  }
  std::sort(record.processes.begin(), record.processes.end(), [](const Process& a, const Process& b) { return a.pid < b.pid; });
  return record;
}

std::string cudnn_version_text(int version) {
  if (version <= 0) return "";
  // 9.0 changed the weights from 1000/100 to 10000/100.
  const int major = version >= 90000 ? version / 10000 : version / 1000;
  const int rest = version >= 90000 ? version % 10000 : version % 1000;
  return std::to_string(major) + "." + std::to_string(rest / 100) + "." + std::to_string(rest % 100);
}

}  // namespace gpumem::record
