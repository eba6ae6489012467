// SPDX-License-Identifier: Apache-2.0
// Reads events-<pid>.bin of a record.
#include "estimator/record/events.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "base/file.h"

namespace gpumem::record {
namespace {

constexpr std::size_t kLargestRecord = 4096;  // of a later version
constexpr std::size_t kMostFiles = 4096;

struct Layout {
  EventFile file;
  std::size_t record_bytes = 0;
};

Result<Layout> parse_header(std::string_view bytes) {
  EventHeader header;
  if (bytes.size() < sizeof header) return Error{ErrorKind::protocol, "it is too short for allocator events"};
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::memcmp(header.magic, kEventMagic, sizeof header.magic) != 0) return Error{ErrorKind::protocol, "it does not begin as allocator events do"};
  if (header.version != kEventVersion) {
    return Error{ErrorKind::protocol, "it is of version " + std::to_string(header.version) + ", this reader knows " + std::to_string(kEventVersion)};
  }
  if (header.record_bytes < sizeof(EventRecord) || header.record_bytes > kLargestRecord) {
    return Error{ErrorKind::protocol, "its records have " + std::to_string(header.record_bytes) + " bytes"};
  }
  Layout layout;
  layout.file.process = header.process;
  layout.file.start_ns = header.start_ns;
  layout.record_bytes = header.record_bytes;
  return layout;
}

void add_records(std::string_view bytes, const Layout& layout, std::vector<EventRecord>& events) {
  for (std::size_t at = 0; at + layout.record_bytes <= bytes.size(); at += layout.record_bytes) {
    EventRecord event;
    std::memcpy(&event, bytes.data() + at, sizeof event);
    events.push_back(event);
  }
}

}  // namespace

Result<EventFile> parse_events(std::string_view bytes, std::size_t most_events) {
  auto layout = parse_header(bytes);
  if (!layout) return layout.error();
  bytes.remove_prefix(sizeof(EventHeader));
  const std::size_t whole = bytes.size() / layout->record_bytes;
  layout->file.torn = bytes.size() % layout->record_bytes != 0 || whole > most_events;
  const std::size_t count = std::min(whole, most_events);
  layout->file.events.reserve(count);
  add_records(bytes.substr(0, count * layout->record_bytes), *layout, layout->file.events);
  return std::move(layout->file);
}

Result<EventFile> read_events(const std::string& path, std::size_t most_events) {
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat found {};
  if (!file.valid() && errno == ENOENT) return Error{ErrorKind::not_found, path + " does not exist"};
  if (!file.valid() || ::fstat(file.get(), &found) != 0) return errno_error("cannot read " + path);
  if (!S_ISREG(found.st_mode)) return Error{ErrorKind::io, path + " is no regular file"};
  std::string buffer(1u << 20, '\0');
  std::size_t held = 0;
  const auto refill = [&]() -> bool {  // false at the end of the file
    while (held < buffer.size()) {
      const ssize_t count = ::read(file.get(), buffer.data() + held, buffer.size() - held);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return false;
      held += static_cast<std::size_t>(count);
    }
    return true;
  };
  bool more = refill();
  auto layout = parse_header(std::string_view(buffer.data(), held));
  if (!layout) return layout.error().with_context(path);
  EventFile events = std::move(layout->file);
  try {
    events.events.reserve(std::min(most_events, static_cast<std::size_t>(std::max<off_t>(0, found.st_size)) / layout->record_bytes));
    std::size_t begin = sizeof(EventHeader);
    for (;;) {
      const std::size_t whole = std::min((held - begin) / layout->record_bytes, most_events - events.events.size());
      add_records(std::string_view(buffer.data() + begin, whole * layout->record_bytes), *layout, events.events);
      const std::size_t rest = held - begin - whole * layout->record_bytes;
      std::memmove(buffer.data(), buffer.data() + held - rest, rest);
      held = rest;
      begin = 0;
      if (!more || events.events.size() >= most_events) break;
      more = refill();
    }
    events.torn = held > 0;
  } catch (const std::bad_alloc&) {
    return Error{ErrorKind::unavailable, path + ": not enough memory for its events"};
  }
  return events;
}

std::vector<EventFile> read_all_events(const std::string& directory, std::vector<std::string>& problems) {
  std::vector<EventFile> files;
  DIR* listing = ::opendir(directory.c_str());
  if (listing == nullptr) return files;
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(listing)) {
    const std::string name = entry->d_name;
    if (name.starts_with("events-") && name.ends_with(".bin") && names.size() < kMostFiles) names.push_back(name);
  }
  ::closedir(listing);
  std::sort(names.begin(), names.end());
  for (const auto& name : names) {
    auto file = read_events(directory + "/" + name);
    if (file) files.push_back(std::move(*file));
    else problems.push_back(file.error().message);
  }
  std::stable_sort(files.begin(), files.end(), [](const EventFile& a, const EventFile& b) { return a.process < b.process; });
  return files;
}

}  // namespace gpumem::record
