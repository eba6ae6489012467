// SPDX-License-Identifier: Apache-2.0
// See merge.h. Runs in gpumemd.
#include "estimator/workspaces/merge.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <string_view>
#include <tuple>

#include "estimator/workspaces/table.h"

namespace gpumem::workspaces {
namespace {

using Key = std::tuple<std::string, std::uint64_t, std::uint64_t>;  // GPU, cuDNN, plan
struct Value {
  std::uint64_t workspace_bytes = 0;
  std::string label;
};
using Lines = std::map<Key, Value>;

Error failed(const char* what, const std::string& path) {
  return {ErrorKind::io, std::string("cannot ") + what + " the table of workspaces " + path + ": " + std::strerror(errno)};
}

template <class Take>
void each_line(const Table& table, Take take) {
  std::string_view rest(table.text, table.bytes);
  for (std::size_t end; (end = rest.find('\n')) != std::string_view::npos; rest.remove_prefix(end + 1)) {
    Entry entry;
    if (parse(rest.data(), end, &entry) && !take(entry)) return;
  }
}

Key key_of(const Entry& entry) { return {std::string(entry.gpu, entry.gpu_length), entry.cudnn_version, entry.key}; }

Status write_table(const std::string& path, const Lines& lines) {
  const std::string next = path + ".new";
  const int fd = ::open(next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) return failed("write", next);
  std::string text;
  for (const auto& [key, value] : lines) {
    const auto& [gpu, version, plan] = key;
    char line[kMaxLine];
    text.append(line, format({gpu.data(), gpu.size(), version, plan, value.workspace_bytes, value.label.data(), value.label.size()}, line, sizeof line));
  }
  bool written = ::fchmod(fd, 0644) == 0;
  for (std::size_t at = 0; written && at < text.size();) {
    const ssize_t n = ::write(fd, text.data() + at, text.size() - at);
    if (n < 0 && errno == EINTR) continue;
    written = n > 0;
    if (written) at += static_cast<std::size_t>(n);
  }
  written = written && ::fsync(fd) == 0;
  Status done{};
  if (!written) done = failed("write", next);
  ::close(fd);
  if (written && ::rename(next.c_str(), path.c_str()) != 0) done = failed("replace", path);
  if (!done) ::unlink(next.c_str());
  return done;
}

}  // namespace

Result<Merged> merge(const std::string& seen, const std::string& table, const std::string& gpu, std::uint64_t device_bytes) {
  Merged merged;
  Table job;
  if (!map(seen.c_str(), &job)) return merged;
  Lines lines;
  if (Table known; map(table.c_str(), &known)) {
    each_line(known, [&](const Entry& entry) {
      lines.try_emplace(key_of(entry), Value{entry.workspace_bytes, std::string(entry.label, entry.label_length)});
      return true;
    });
    unmap(&known);
  }
  int taken = 0;
  each_line(job, [&](const Entry& entry) {
    if (std::string_view(entry.gpu, entry.gpu_length) != gpu || entry.workspace_bytes > device_bytes) {
      ++merged.refused;
      return true;
    }
    if (++taken > kMostOfJob) {
      ++merged.refused;
      return false;
    }
    auto found = lines.find(key_of(entry));
    if (found != lines.end()) {
      if (entry.workspace_bytes > found->second.workspace_bytes) {
        found->second.workspace_bytes = entry.workspace_bytes;
        ++merged.grown;
      }
    } else if (lines.size() < kMostOfTable) {
      lines.emplace(key_of(entry), Value{entry.workspace_bytes, std::string(entry.label, entry.label_length)});
      ++merged.added;
    } else {
      ++merged.refused;
    }
    return true;
  });
  unmap(&job);
  if (merged.added + merged.grown == 0) return merged;
  if (auto written = write_table(table, lines); !written) return written.error();
  return merged;
}

}  // namespace gpumem::workspaces
