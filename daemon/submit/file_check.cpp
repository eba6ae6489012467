// SPDX-License-Identifier: Apache-2.0
// stat() of the files of a cached answer, as the user.
#include "daemon/submit/file_check.h"

#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>

namespace gpumem::submit {
namespace {

// A local file takes microseconds; a server that needs longer than this is slower than a probe's decision may be.
constexpr double kTimeout_s = 3;

bool all_same(const std::vector<db::ProbedFile>& files) {
  for (const db::ProbedFile& file : files) {
    struct stat found {};
    if (::stat(file.path.c_str(), &found) != 0) return false;
    const std::int64_t mtime_ns = static_cast<std::int64_t>(found.st_mtim.tv_sec) * 1000000000 + found.st_mtim.tv_nsec;
    if (static_cast<std::uint64_t>(found.st_size) != file.size_bytes || mtime_ns != file.mtime_ns) return false;
  }
  return true;
}

}  // namespace

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
