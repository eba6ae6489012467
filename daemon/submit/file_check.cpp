// SPDX-License-Identifier: Apache-2.0
// stat() of the files of a cached answer, as the user.
#include "daemon/submit/file_check.h"

#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>

namespace gpumem::submit {
namespace {

// A local file takes microseconds; a server that needs longer than this is slower than a probe's decision may be.
constexpr double kTimeout_s = 3;

db::ProbedFile look(const std::string& path) {
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0) return {path, 0, kAbsent_ns};
  return {path, static_cast<std::uint64_t>(found.st_size), static_cast<std::int64_t>(found.st_mtim.tv_sec) * 1000000000 + found.st_mtim.tv_nsec};
}

bool all_same(const std::vector<db::ProbedFile>& files) {
  return std::all_of(files.begin(), files.end(), [](const db::ProbedFile& file) {
    const db::ProbedFile now = look(file.path);
    return now.size_bytes == file.size_bytes && now.mtime_ns == file.mtime_ns;
  });
}

// Runs in the child.
void write_looks(int answer_fd, const std::vector<std::string>& paths) {
  std::string text;
  for (const std::string& path : paths) {
    const db::ProbedFile file = look(path);
    text += std::to_string(file.size_bytes) + " " + std::to_string(file.mtime_ns) + "\n";
  }
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t count = ::write(answer_fd, text.data() + at, text.size() - at);
    if (count <= 0) ::_exit(1);
    at += static_cast<std::size_t>(count);
  }
}

}  // namespace

void look_at_files(Children& children, const Identity& identity, std::vector<std::string> paths,
                   std::function<void(std::vector<db::ProbedFile>)> done) {
  auto files = std::make_shared<std::vector<db::ProbedFile>>();
  const std::size_t count = paths.size();
  ChildOptions options;
  options.identity = &identity;
  options.timeout_s = kTimeout_s;
  options.work = [paths](int answer_fd) { write_looks(answer_fd, paths); };
  options.on_line = [files, paths](std::string_view line) {
    db::ProbedFile file;
    const std::string text(line);
    unsigned long long size = 0;
    long long mtime_ns = 0;
    if (files->size() >= paths.size() || std::sscanf(text.c_str(), "%llu %lld", &size, &mtime_ns) != 2) return;
    files->push_back({paths[files->size()], size, mtime_ns});
  };
  options.on_end = [files, count, done](const ChildEnd&) {
    if (files->size() != count) files->clear();
    done(std::move(*files));
  };
  const auto started = children.start(std::move(options));
  if (started) return;
  spdlog::warn("cannot look at a job's files: {}", started.error().message);
  done({});
}

void check_files(Children& children, const Identity& identity, std::vector<db::ProbedFile> files, std::function<void(bool same)> done) {
  auto same = std::make_shared<bool>(false);
  ChildOptions options;
  options.identity = &identity;
  options.timeout_s = kTimeout_s;
  options.answer_fd = 3;
  options.work = [files = std::move(files)](int answer_fd) {
    if (::write(answer_fd, all_same(files) ? "1\n" : "0\n", 2) != 2) ::_exit(1);
  };
  options.on_line = [same](std::string_view line) { *same = line == "1"; };
  options.on_end = [same, done](const ChildEnd&) { done(*same); };
  const auto started = children.start(std::move(options));
  if (started) return;
  spdlog::warn("cannot look at a job's files: {}", started.error().message);
  done(false);
}

}  // namespace gpumem::submit
