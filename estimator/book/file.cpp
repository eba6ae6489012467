// SPDX-License-Identifier: Apache-2.0
// Making, mapping and locking a book's file. Runs in every process that uses a book.

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "estimator/book/layout.h"
#include "estimator/book/lock.h"

namespace gpumem::book {
namespace {

// Programs close low descriptors wholesale (daemons, shells); a high one is in nobody's way.
constexpr int kLowestDescriptor = 700;

void say(char *error, size_t size, const char *what, const char *path, const char *cause) {
  if (error != nullptr && size > 0) snprintf(error, size, "%s '%s': %s", what, path, cause);
}

// fstat's symbol is newer than glibc 2.17 in programs linked today.
bool get_status(int fd, struct stat *status) { return syscall(SYS_fstat, fd, status) == 0; }

int move_up(int fd) {
  const int high = fcntl(fd, F_DUPFD_CLOEXEC, kLowestDescriptor);
  if (high < 0) return fd;
  ::close(fd);
  return high;
}

bool set_lock(int fd, short type, off_t offset, bool wait) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = offset;
  lock.l_len = 1;
  int result;
  do {
    result = fcntl(fd, wait ? F_SETLKW : F_SETLK, &lock);
  } while (result < 0 && errno == EINTR);
  return result == 0;
}

// The descriptor may have been closed behind our back, and its number given to another file.
bool descriptor_is_ours(Book *book) {
  struct stat status;
  return book->fd >= 0 && get_status(book->fd, &status) && status.st_dev == book->file_device &&
         status.st_ino == book->file_inode;
}

bool reopen(Book *book) {
  const int fd = ::open(book->path, (book->writable ? O_RDWR : O_RDONLY) | O_CLOEXEC);
  if (fd < 0) return false;
  book->fd = move_up(fd);
  if (!descriptor_is_ours(book)) {
    ::close(book->fd);
    book->fd = -1;
    errno = ESTALE;
    return false;
  }
  if (book->row >= 0 && book->row_pid == getpid()) set_lock(book->fd, F_WRLCK, kRowLockOffset + book->row, false);
  return true;
}

void recompute(Layout *layout) {
  for (int d = 0; d < kMaxDevices; ++d) {
    DeviceRow &device = layout->devices[d];
    device.used_bytes = device.context_bytes = 0;
    for (JobRow &job : layout->jobs) job.devices[d].used_bytes = 0;
    for (ProcessRow &row : layout->processes) {
      if (row.state != kRowAttached) continue;
      const uint64_t bytes = row.devices[d].context_bytes + row.devices[d].allocated_bytes;
      device.used_bytes += bytes;
      device.context_bytes += row.devices[d].context_bytes;
      if (row.job >= 0 && row.job < kMaxJobs) layout->jobs[row.job].devices[d].used_bytes += bytes;
    }
  }
}

}  // namespace

Status create(const char *path, const DeviceDescription *devices, int count, Accounting accounting, mode_t mode,
              char *error, size_t error_size) {
  if (count < 1 || count > kMaxDevices) {
    say(error, error_size, "cannot make book", path, "a book has 1 to 16 devices");
    return Status::no_such_device;
  }
  const int fd = ::open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (fd < 0) {
    say(error, error_size, "cannot make book", path, strerror(errno));
    return Status::cannot_open;
  }
  void *address = MAP_FAILED;
  if (fchmod(fd, mode) == 0 && ftruncate(fd, sizeof(Layout)) == 0)
    address = mmap(nullptr, sizeof(Layout), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) {
    say(error, error_size, "cannot make book", path, strerror(errno));
    unlink(path);
    ::close(fd);
    return Status::cannot_open;
  }
  Layout *layout = static_cast<Layout *>(address);
  layout->version = kVersion;
  layout->layout_bytes = sizeof(Layout);
  layout->accounting = static_cast<uint32_t>(accounting);
  layout->device_count = static_cast<uint32_t>(count);
  layout->next_order = 1;
  for (int d = 0; d < count; ++d) layout->devices[d].description = devices[d];
  // The magic last: whoever opens a half-made book is told that it is none.
  __atomic_thread_fence(__ATOMIC_RELEASE);
  memcpy(layout->magic, kMagic, sizeof(kMagic));
  munmap(address, sizeof(Layout));
  ::close(fd);
  return Status::ok;
}

Status open(Book *book, const char *path, bool writable, char *error, size_t error_size) {
  if (path == nullptr || path[0] != '/' || strlen(path) >= sizeof(book->path)) {
    say(error, error_size, "cannot open book", path == nullptr ? "" : path, "an absolute path is needed");
    return Status::cannot_open;
  }
  int fd = ::open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC);
  if (fd < 0) {
    say(error, error_size, "cannot open book", path, strerror(errno));
    return Status::cannot_open;
  }
  fd = move_up(fd);
  struct stat status;
  if (!get_status(fd, &status) || status.st_size < static_cast<off_t>(sizeof(Layout))) {
    say(error, error_size, "cannot open book", path, "it is no book of this version of gpumem");
    ::close(fd);
    return Status::not_a_book;
  }
  void *address = mmap(nullptr, sizeof(Layout), writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) {
    say(error, error_size, "cannot map book", path, strerror(errno));
    ::close(fd);
    return Status::host_failure;
  }
  Layout *layout = static_cast<Layout *>(address);
  if (memcmp(layout->magic, kMagic, sizeof(kMagic)) != 0 || layout->version != kVersion ||
      layout->layout_bytes != sizeof(Layout) || layout->device_count < 1 || layout->device_count > kMaxDevices) {
    say(error, error_size, "cannot open book", path, "it is no book of this version of gpumem");
    munmap(address, sizeof(Layout));
    ::close(fd);
    return Status::not_a_book;
  }
  book->layout = layout;
  book->fd = fd;
  book->row = -1;
  book->row_pid = 0;
  book->writable = writable;
  book->futex = 0;
  strcpy(book->path, path);
  book->file_device = status.st_dev;
  book->file_inode = status.st_ino;
  return Status::ok;
}

void close(Book *book) {
  if (book->layout == nullptr) return;
  detach(book);
  munmap(book->layout, sizeof(Layout));
  if (descriptor_is_ours(book)) ::close(book->fd);
  *book = Book{};
}

void after_fork(Book *book) {
  // The descriptor is shared with the parent, which is harmless: POSIX locks belong to the process.
  forked();
  book->futex = 0;
}

bool lock_book(Book *book) {
  lock_word(&book->futex);
  if (!descriptor_is_ours(book) && !reopen(book)) {
    unlock_word(&book->futex);
    return false;
  }
  if (!set_lock(book->fd, book->writable ? F_WRLCK : F_RDLCK, kBookLockOffset, true)) {
    unlock_word(&book->futex);
    return false;
  }
  if (book->writable) {
    if (book->layout->dirty) recompute(book->layout);
    __atomic_store_n(&book->layout->dirty, 1, __ATOMIC_SEQ_CST);
  }
  return true;
}

void unlock_book(Book *book) {
  if (book->writable) __atomic_store_n(&book->layout->dirty, 0, __ATOMIC_SEQ_CST);
  set_lock(book->fd, F_UNLCK, kBookLockOffset, false);
  unlock_word(&book->futex);
}

Accounting accounting(const Book &book) { return static_cast<Accounting>(book.layout->accounting); }

int device_count(const Book &book) { return static_cast<int>(book.layout->device_count); }

const DeviceDescription *description(const Book &book, int device) {
  if (device < 0 || device >= device_count(book)) return nullptr;
  return &book.layout->devices[device].description;
}

const char *status_text(Status status) {
  switch (status) {
    case Status::ok: return "ok";
    case Status::out_of_memory: return "out of device memory";
    case Status::no_such_device: return "no such device";
    case Status::not_attached: return "this process is not attached to the book";
    case Status::full: return "every row of the book belongs to a living process";
    case Status::cannot_open: return "the book cannot be opened";
    case Status::not_a_book: return "the file is no book of this version of gpumem";
    case Status::host_failure: return "the host refused a lock or a mapping";
  }
  return "unknown";
}

}  // namespace gpumem::book
