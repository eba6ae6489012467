// SPDX-License-Identifier: Apache-2.0
// Files and descriptors. Used by every program but the preloaded libraries and the plugin.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"

namespace gpumem {

// Owns a file descriptor and closes it. Movable, not copyable; not thread-safe.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release();
  void reset();

 private:
  int fd_ = -1;
};

// Both ends of a pipe, closed on exec.
struct Pipe {
  FileDescriptor read_end, write_end;
};
Result<Pipe> make_pipe();

// The error for `errno` now: "cannot open /x: Permission denied". Its kind is not_found, permission or io.
Error errno_error(const std::string& what_failed);

// The whole content; fails with io if it is larger than `largest_bytes`.
Result<std::string> read_file(const std::string& path, std::size_t largest_bytes = 64u << 20);

// Replaces `path` in one step (temporary file beside it, fsync, rename): a reader sees the old or the new content.
Status write_file_atomically(const std::string& path, std::string_view content, unsigned mode = 0644);

// Makes the directory and its missing parents.
Status make_directories(const std::string& path, unsigned mode = 0755);

// A new directory PARENT/NAME-XXXXXX of mode 0700.
Result<std::string> make_temporary_directory(const std::string& parent, const std::string& name);

// Removes a tree; a missing one is success. Never follows symbolic links.
Status remove_tree(const std::string& path);

}  // namespace gpumem
