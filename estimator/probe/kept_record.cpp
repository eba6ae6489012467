// SPDX-License-Identifier: Apache-2.0
// Records that outlive their probe.
#include "estimator/probe/kept_record.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

#include "base/file.h"
#include "base/size.h"
#include "estimator/probe/environment.h"
#include "estimator/probe/tracer_cache.h"

namespace gpumem::probe {
namespace {

// Home directories have quotas: this much of one is ours, by default.
constexpr std::size_t kMostRecords = 8;
constexpr std::uint64_t kLargestInCache = 32 * kMiB;
// A record that was asked for by name, and PyTorch's snapshot.
constexpr std::uint64_t kLargestOnDemand = 4 * kGiB;
constexpr int kMostFiles = 4096;

struct File {
  std::string name;
  std::uint64_t bytes = 0;
};

bool ends_with_any(const std::string& name, std::initializer_list<const char*> endings) {
  return std::any_of(endings.begin(), endings.end(), [&](const char* ending) { return name.ends_with(ending); });
}

// Regular files of `directory` with one of the endings, largest first.
std::vector<File> files_of(const std::string& directory, std::initializer_list<const char*> endings) {
  std::vector<File> files;
  DIR* listing = ::opendir(directory.c_str());
  if (listing == nullptr) return files;
  while (const dirent* entry = ::readdir(listing)) {
    struct stat found {};
    const std::string name = entry->d_name;
    if (name[0] == '.' || !ends_with_any(name, endings) || static_cast<int>(files.size()) >= kMostFiles) continue;
    if (::lstat((directory + "/" + name).c_str(), &found) == 0 && S_ISREG(found.st_mode)) {
      files.push_back({name, static_cast<std::uint64_t>(found.st_size)});
    }
  }
  ::closedir(listing);
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) { return a.bytes > b.bytes; });
  return files;
}

// The program may still hold `from` open: it is opened without following links and read as far as it was when it was listed.
Status copy_file(const std::string& from, const std::string& to, std::uint64_t bytes) {
  FileDescriptor source(::open(from.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!source.valid()) return errno_error("cannot read " + from);
  FileDescriptor target(::open(to.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!target.valid()) return errno_error("cannot write " + to);
  std::vector<char> buffer(1 << 20);
  while (bytes > 0) {
    const ssize_t count = ::read(source.get(), buffer.data(), std::min<std::uint64_t>(buffer.size(), bytes));
    if (count < 0) return errno_error("cannot read " + from);
    if (count == 0) break;
    for (ssize_t at = 0; at < count;) {
      const ssize_t written = ::write(target.get(), buffer.data() + at, static_cast<std::size_t>(count - at));
      if (written < 0) return errno_error("cannot write " + to);
      at += written;
    }
    bytes -= static_cast<std::uint64_t>(count);
  }
  return {};
}

std::vector<std::string> records_in(const std::string& directory) {
  std::vector<std::string> records;
  for_each_subdirectory(directory, [&](const std::string& path) { records.push_back(path); });
  std::sort(records.begin(), records.end());  // their names begin with the time
  return records;
}

std::string name_of_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char text[64];
  std::strftime(text, sizeof text, "%Y%m%dT%H%M%SZ", &utc);
  return std::string(text) + "-" + std::to_string(::getpid());
}

void prune(const std::string& directory) {
  auto records = records_in(directory);
  for (std::size_t i = 0; i + kMostRecords < records.size(); ++i) (void)!remove_tree(records[i]).ok();
}

Status copy_record(const std::string& from, const std::string& to, std::uint64_t largest_bytes) {
  const auto files = files_of(from, {".jsonl", ".bin"});
  std::uint64_t bytes = 0;
  for (const auto& file : files) bytes += file.bytes;
  if (bytes > largest_bytes) {
    return Error{ErrorKind::io, "it is larger than " + format_size(largest_bytes) + " (" + format_size(bytes) + "): --record DIRECTORY keeps it"};
  }
  if (auto made = make_directories(to, 0700); !made) return made;
  for (const auto& file : files) {
    if (auto copied = copy_file(from + "/" + file.name, to + "/" + file.name, file.bytes); !copied) return copied;
  }
  return {};
}

void add_note(nlohmann::json& estimate, const std::string& text) { estimate["notes"].push_back(text); }

// The snapshot of the process with the longest history: a launcher and its workers each write one.
void keep_snapshot(const std::string& directory, const std::string& file, nlohmann::json& estimate) {
  const auto snapshots = files_of(directory, {".pickle"});
  if (snapshots.empty()) return add_note(estimate, "no snapshot was written: no process with PyTorch ended in order");
  if (snapshots.front().bytes > kLargestOnDemand) return add_note(estimate, "the snapshot is larger than " + format_size(kLargestOnDemand));
  if (auto copied = copy_file(directory + "/" + snapshots.front().name, file, snapshots.front().bytes); !copied) {
    return add_note(estimate, "no snapshot was written: " + copied.error().message);
  }
  if (snapshots.size() > 1) {
    add_note(estimate, "the snapshot is that of " + snapshots.front().name + ", the longest of " + std::to_string(snapshots.size()));
  }
}

}  // namespace

std::string records_directory(const std::vector<std::string>& environment) { return user_cache_directory(environment, "records"); }

void keep_record(const std::string& directory, const Request& request, nlohmann::json& estimate) {
  if (!request.snapshot_file.empty()) keep_snapshot(directory, request.snapshot_file, estimate);
  const bool named = !request.record_directory.empty();
  const std::string cache = records_directory(request.environment);
  if (!named && cache.empty()) return;
  const std::string target = named ? request.record_directory : cache + "/" + name_of_now();
  Status kept = named || make_directories(cache, 0700) ? Status{} : Status{Error{ErrorKind::io, "cannot make " + cache}};
  if (kept) kept = copy_record(directory, target, named ? kLargestOnDemand : kLargestInCache);
  if (kept) {
    estimate["record"] = target;
    kept = write_file_atomically(target + "/estimate.json", estimate.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n", 0600);
  }
  if (!kept) {
    estimate.erase("record");
    // An unasked copy may fail without a word where there is no room for it; gpumem explain then finds none.
    if (named || kept.error().message.find("larger") != std::string::npos) add_note(estimate, "the record was not kept: " + kept.error().message);
    return;
  }
  if (!named) prune(cache);
}

void update_kept_record(const nlohmann::json& estimate) {
  const auto kept = estimate.find("record");
  if (kept == estimate.end() || !kept->is_string()) return;
  // Where it fails the record has the estimate as it was before the proof.
  (void)!write_file_atomically(kept->get<std::string>() + "/estimate.json", estimate.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n", 0600).ok();
}

Result<std::string> newest_record(const std::string& directory) {
  const auto records = records_in(directory);
  if (records.empty()) return Error{ErrorKind::not_found, "no record in " + directory + ": gpumem estimate -- COMMAND makes one"};
  return records.back();
}

}  // namespace gpumem::probe
