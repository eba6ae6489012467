// SPDX-License-Identifier: Apache-2.0
// A book as it is at this moment, copied.
#include "daemon/node/snapshot.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "base/file.h"

namespace gpumem::node {
namespace {

constexpr off_t kLargestBook = 64 << 20;   // many times what a book of any version takes
constexpr unsigned kReclaimPatience_s = 5;  // for the book's lock; the next tick tries again

// Copies up to the file's end, in pieces: a book has holes and is read at every tick.
Status copy_file(int from, int to, const std::string& path) {
  std::vector<char> piece(1 << 18);
  off_t copied = 0;
  for (;;) {
    const ssize_t got = ::read(from, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error("cannot read " + path);
    if (got == 0) return {};
    copied += got;
    if (copied > kLargestBook) return Error{ErrorKind::io, path + " is too large to be a book"};
    for (ssize_t written = 0; written < got;) {
      const ssize_t put = ::write(to, piece.data() + written, static_cast<std::size_t>(got - written));
      if (put < 0 && errno != EINTR) return errno_error("cannot copy " + path);
      if (put > 0) written += put;
    }
  }
}

}  // namespace

Result<Snapshot> Snapshot::take(const std::string& path) {
  // O_NONBLOCK and O_NOFOLLOW: a user who replaced the file by a pipe or a link gets an error, not the daemon's time.
  const FileDescriptor from(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  if (!from.valid()) return errno_error("cannot open the book " + path);
  const FileDescriptor to(::memfd_create("book", MFD_CLOEXEC));
  if (!to.valid()) return errno_error("cannot copy the book " + path);
  if (auto copied = copy_file(from.get(), to.get(), path); !copied) return copied.error();
  Snapshot snapshot;
  char error[512] = "";
  const std::string copy = "/proc/self/fd/" + std::to_string(to.get());
  const auto opened = book::open(&snapshot.book_, copy.c_str(), false, error, sizeof error);
  if (opened == book::Status::not_a_book) return Error{ErrorKind::unsupported, path + ": " + book::status_text(opened)};
  if (opened != book::Status::ok) return Error{ErrorKind::io, "cannot open a copy of the book " + path + ": " + error};
  return snapshot;
}

Snapshot::Snapshot(Snapshot&& other) noexcept : book_(other.book_) { other.book_ = book::Book(); }

Snapshot::~Snapshot() { book::close(&book_); }

void reclaim_in_child(const std::string& path) {
  const pid_t child = ::fork();
  if (child != 0) {
    // The child ends at once; its own child, which may wait for the lock, is init's to bury.
    if (child > 0) ::waitpid(child, nullptr, 0);
    return;
  }
  if (::fork() != 0) ::_exit(0);
  ::signal(SIGALRM, SIG_DFL);
  ::alarm(kReclaimPatience_s);
  char error[512];
  book::Book book;
  if (book::open(&book, path.c_str(), true, error, sizeof error) == book::Status::ok) book::reclaim(&book);
  ::_exit(0);
}

}  // namespace gpumem::node
