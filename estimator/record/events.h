// SPDX-License-Identifier: Apache-2.0
// Reads events-<pid>.bin of a record: what a process asked PyTorch's allocator for. Used by gpumem-probe and tests.
//
// The program can write there too: any bytes are read without harm, what makes no sense is an error or counted. Format:
// estimator/tracer/event_format.h and contracts.md, "Record". Times in ns since `start_ns`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "estimator/tracer/event_format.h"

namespace gpumem::record {

struct EventFile {
  std::uint64_t process = 0;   // pid, as the process saw itself
  std::uint64_t start_ns = 0;  // Unix time
  std::vector<EventRecord> events;
  bool torn = false;           // the last record was cut, or the file is longer than what is read
};

// Of 40-byte records this many at most are read (1.3 GB of them): a probe of thousands of steps writes some million.
inline constexpr std::size_t kMostEvents = 32u << 20;

// Fails with protocol where the bytes are no such file or of a version that this reader does not know.
Result<EventFile> parse_events(std::string_view bytes, std::size_t most_events = kMostEvents);

// Regular files only; fails with not_found, io or as parse_events.
Result<EventFile> read_events(const std::string& path, std::size_t most_events = kMostEvents);

// All events-*.bin of a record's directory that can be read, by pid; others are left out, with a sentence in `problems`.
std::vector<EventFile> read_all_events(const std::string& directory, std::vector<std::string>& problems);

}  // namespace gpumem::record
