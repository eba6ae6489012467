// SPDX-License-Identifier: Apache-2.0
// Files and descriptors.
#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace gpumem {

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = other.release();
  }
  return *this;
}

int FileDescriptor::release() {
  const int fd = fd_;
  fd_ = -1;
  return fd;
}

void FileDescriptor::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Result<Pipe> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_error("cannot make a pipe");
  return Pipe{FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

Error errno_error(const std::string& what_failed) {
  const int number = errno;
  ErrorKind kind = ErrorKind::io;
  if (number == ENOENT || number == ENOTDIR) kind = ErrorKind::not_found;
  if (number == EACCES || number == EPERM) kind = ErrorKind::permission;
  return {kind, what_failed + ": " + std::strerror(number)};
}

Result<std::string> read_file(const std::string& path, std::size_t largest_bytes) {
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return errno_error("cannot open " + path);
  std::string content;
  char buffer[65536];
  for (;;) {
    const ssize_t count = ::read(file.get(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno_error("cannot read " + path);
    if (count == 0) return content;
    content.append(buffer, static_cast<std::size_t>(count));
    if (content.size() > largest_bytes) {
      return Error{ErrorKind::io, path + " is larger than " + std::to_string(largest_bytes) + " bytes"};
    }
  }
}

Status write_file_atomically(const std::string& path, std::string_view content, unsigned mode) {
  std::string temporary = path + ".XXXXXX";
  FileDescriptor file(::mkostemp(temporary.data(), O_CLOEXEC));
  if (!file.valid()) return errno_error("cannot create a file beside " + path);
  auto fail = [&](const std::string& what) {
    Error error = errno_error(what);
    ::unlink(temporary.c_str());
    return error;
  };
  while (!content.empty()) {
    const ssize_t count = ::write(file.get(), content.data(), content.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail("cannot write " + temporary);
    content.remove_prefix(static_cast<std::size_t>(count));
  }
  if (::fchmod(file.get(), mode) != 0) return fail("cannot set the mode of " + temporary);
  if (::fsync(file.get()) != 0) return fail("cannot sync " + temporary);
  if (::rename(temporary.c_str(), path.c_str()) != 0) return fail("cannot rename " + temporary + " to " + path);
  return {};
}

Status make_directories(const std::string& path, unsigned mode) {
  for (std::size_t at = 1; at <= path.size(); ++at) {
    if (at < path.size() && path[at] != '/') continue;
    const std::string part = path.substr(0, at);
    if (::mkdir(part.c_str(), mode) != 0 && errno != EEXIST) return errno_error("cannot make directory " + part);
  }
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0) return errno_error("cannot make directory " + path);
  if (!S_ISDIR(found.st_mode)) return Error{ErrorKind::io, path + " exists and is not a directory"};
  return {};
}

Result<std::string> make_temporary_directory(const std::string& parent, const std::string& name) {
  std::string path = parent + "/" + name + "-XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) return errno_error("cannot make a directory in " + parent);
  return path;
}

Status remove_tree(const std::string& path) {
  std::error_code status;
  std::filesystem::remove_all(path, status);
  if (status) return Error{ErrorKind::io, "cannot remove " + path + ": " + status.message()};
  return {};
}

}  // namespace gpumem
