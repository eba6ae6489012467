// SPDX-License-Identifier: Apache-2.0
// The accounts of a book: rows of processes and jobs, charges, and taking back what the dead held.
// Runs in every process that uses a book.

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "estimator/book/layout.h"
#include "estimator/book/lock.h"

namespace gpumem::book {
namespace {

// Field `number` (from 1) of /proc/PID/stat as a number, and the state letter; false when there is no such process.
bool read_process_stat(pid_t pid, uint64_t *start_ticks, char *state) {
  char path[40], text[1024];
  snprintf(path, sizeof(path), "/proc/%d/stat", static_cast<int>(pid));
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const ssize_t size = read(fd, text, sizeof(text) - 1);
  ::close(fd);
  if (size <= 0) return false;
  text[size] = '\0';
  const char *at = strrchr(text, ')');  // the command may hold anything, spaces and parentheses too
  if (at == nullptr || at[1] == '\0') return false;
  at += 2;
  *state = *at;
  for (int field = 3; field < 22 && at != nullptr; ++field) {
    at = strchr(at, ' ');
    if (at != nullptr) ++at;
  }
  if (at == nullptr) return false;
  *start_ticks = strtoull(at, nullptr, 10);
  return true;
}

uint64_t pid_namespace() {
  struct stat status;
  if (syscall(SYS_newfstatat, AT_FDCWD, "/proc/self/ns/pid", &status, 0) != 0) return 0;
  return status.st_ino;
}

void read_comm(char *comm, size_t size) {
  const int fd = ::open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
  ssize_t got = fd < 0 ? 0 : read(fd, comm, size - 1);
  if (fd >= 0) ::close(fd);
  if (got < 0) got = 0;
  if (got > 0 && comm[got - 1] == '\n') --got;
  comm[got] = '\0';
}

int64_t now_unix_us() {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * 1000000ll + now.tv_nsec / 1000;
}

bool is_mine(const Book *book) { return book->row >= 0 && book->row_pid == getpid(); }

bool row_is_dead(const Book *book, int row, uint64_t own_namespace) {
  if (is_mine(book) && book->row == row) return false;
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = kRowLockOffset + row;
  lock.l_len = 1;
  if (fcntl(book->fd, F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK) return false;
  // No proof of life. A program may have closed our descriptor, so a process we can see is believed to live.
  const ProcessRow &process = book->layout->processes[row];
  if (process.pid_namespace == 0 || process.pid_namespace != own_namespace) return true;
  uint64_t start_ticks = 0;
  char state = 0;
  if (!read_process_stat(process.pid, &start_ticks, &state)) return true;
  return start_ticks != process.start_ticks || state == 'Z' || state == 'X';
}

int find_job(const Layout *layout, const char *key) {
  for (int j = 0; j < kMaxJobs; ++j)
    if (layout->jobs[j].in_use && strncmp(layout->jobs[j].key, key, kJobKeySize - 1) == 0) return j;
  return -1;
}

bool job_has_processes(const Layout *layout, int job) {
  for (const ProcessRow &row : layout->processes)
    if (row.state == kRowAttached && row.job == job) return true;
  return false;
}

int find_or_make_job(Layout *layout, const char *key) {
  int job = find_job(layout, key);
  if (job >= 0) return job;
  int oldest = -1;
  for (int j = 0; j < kMaxJobs; ++j) {
    if (!layout->jobs[j].in_use) {
      oldest = j;
      break;
    }
    if (!job_has_processes(layout, j) && (oldest < 0 || layout->jobs[j].order < layout->jobs[oldest].order)) oldest = j;
  }
  if (oldest < 0) return -1;
  JobRow &row = layout->jobs[oldest];
  // Ended processes of the row's former job must not count as the new one's.
  for (ProcessRow &process : layout->processes)
    if (process.state == kRowEnded && process.job == oldest) process.state = kRowFree;
  memset(&row, 0, sizeof(row));
  strncpy(row.key, key, kJobKeySize - 1);
  row.order = layout->next_order++;
  row.in_use = 1;
  return oldest;
}

int find_free_row(Book *book) {
  Layout *layout = book->layout;
  for (int attempt = 0; attempt < 2; ++attempt) {
    int oldest = -1;
    for (int r = 0; r < kMaxProcesses; ++r) {
      const ProcessRow &row = layout->processes[r];
      if (row.state == kRowFree) return r;
      if (row.state == kRowEnded && (oldest < 0 || row.order < layout->processes[oldest].order)) oldest = r;
    }
    if (oldest >= 0) return oldest;
    if (reclaim_locked(book) == 0) return -1;
  }
  return -1;
}

uint64_t room(uint64_t limit, uint64_t used) { return limit > used ? limit - used : 0; }

// UINT64_MAX stands for "no bound".
uint64_t room_now(const Layout *layout, int device, const JobRow *job) {
  const DeviceRow &row = layout->devices[device];
  uint64_t bytes = UINT64_MAX;
  if (row.description.usable_bytes != 0) bytes = room(row.description.usable_bytes, row.used_bytes);
  if (job != nullptr && job->devices[device].limit_bytes != 0) {
    const uint64_t of_job = room(job->devices[device].limit_bytes, job->devices[device].used_bytes);
    if (of_job < bytes) bytes = of_job;
  }
  return bytes;
}

// Would these bytes make a new peak while other processes are in the accounts? Some of them may be dead: no peak counts them.
bool peak_may_count_the_dead(const Book *book, int device, uint64_t bytes) {
  const Layout *layout = book->layout;
  const DeviceRow &total = layout->devices[device];
  const JobDevice &job = layout->jobs[layout->processes[book->row].job].devices[device];
  if (total.used_bytes + bytes <= total.peak_bytes && job.used_bytes + bytes <= job.peak_bytes) return false;
  // Rows are taken from the first on, one an attachment: none beyond their number was ever used.
  for (int r = 0; r < kMaxProcesses && static_cast<uint64_t>(r) < layout->next_order; ++r)
    if (r != book->row && layout->processes[r].state == kRowAttached) return true;
  return false;
}

bool bad_device(const Book *book, int device) { return device < 0 || device >= device_count(*book); }

}  // namespace

void end_row_locked(Layout *layout, int row_index) {
  ProcessRow &row = layout->processes[row_index];
  for (int d = 0; d < kMaxDevices; ++d) {
    ProcessDevice &mine = row.devices[d];
    const uint64_t bytes = mine.context_bytes + mine.allocated_bytes;
    layout->devices[d].used_bytes -= bytes;
    layout->devices[d].context_bytes -= mine.context_bytes;
    if (row.job >= 0) layout->jobs[row.job].devices[d].used_bytes -= bytes;
    mine.context_bytes = mine.allocated_bytes = 0;
  }
  row.state = kRowEnded;
}

int reclaim_locked(Book *book) {
  int ended = 0;
  uint64_t own_namespace = 0;
  for (int r = 0; r < kMaxProcesses; ++r) {
    if (book->layout->processes[r].state != kRowAttached) continue;
    if (own_namespace == 0) own_namespace = pid_namespace();
    if (!row_is_dead(book, r, own_namespace)) continue;
    end_row_locked(book->layout, r);
    ++ended;
  }
  return ended;
}

int reclaim(Book *book) {
  if (!book->writable || !lock_book(book)) return 0;
  const int ended = reclaim_locked(book);
  unlock_book(book);
  return ended;
}

Status attach(Book *book, const char *job_key) {
  if (book->layout == nullptr || !book->writable) return Status::cannot_open;
  if (is_mine(book)) return Status::ok;
  const bool forked_after_use = book->row >= 0;
  if (!lock_book(book)) return Status::host_failure;
  Layout *layout = book->layout;
  const pid_t pid = getpid();
  const uint64_t own_namespace = pid_namespace();
  // What this pid held before an exec is gone, as is a device's memory then.
  for (int r = 0; r < kMaxProcesses; ++r) {
    const ProcessRow &old = layout->processes[r];
    if (old.state == kRowAttached && old.pid == pid && own_namespace != 0 && old.pid_namespace == own_namespace &&
        row_is_dead(book, r, 0))
      end_row_locked(layout, r);
  }
  // Peaks should not count the dead beside the living.
  reclaim_locked(book);
  const int row_index = find_free_row(book);
  const int job = row_index < 0 ? -1 : find_or_make_job(layout, job_key == nullptr ? "" : job_key);
  struct flock life = {};
  life.l_type = F_WRLCK;
  life.l_whence = SEEK_SET;
  life.l_start = kRowLockOffset + row_index;
  life.l_len = 1;
  if (row_index < 0 || job < 0 || fcntl(book->fd, F_SETLK, &life) != 0) {
    const Status status = row_index < 0 || job < 0 ? Status::full : Status::host_failure;
    unlock_book(book);
    return status;
  }
  ProcessRow &row = layout->processes[row_index];
  memset(&row, 0, sizeof(row));
  row.job = job;
  row.pid = pid;
  row.user_id = getuid();
  row.pid_namespace = own_namespace;
  char state;
  read_process_stat(pid, &row.start_ticks, &state);
  row.order = layout->next_order++;
  row.attached_unix_us = now_unix_us();
  read_comm(row.comm, sizeof(row.comm));
  row.forked_after_use = forked_after_use ? 1 : 0;
  row.state = kRowAttached;
  book->row = row_index;
  book->row_pid = pid;
  unlock_book(book);
  return Status::ok;
}

void detach(Book *book) {
  if (book->layout == nullptr || !is_mine(book)) return;
  if (!lock_book(book)) return;
  end_row_locked(book->layout, book->row);
  struct flock life = {};
  life.l_type = F_UNLCK;
  life.l_whence = SEEK_SET;
  life.l_start = kRowLockOffset + book->row;
  life.l_len = 1;
  fcntl(book->fd, F_SETLK, &life);
  unlock_book(book);
  book->row = -1;
}

Status charge(Book *book, int device, uint64_t bytes, Charge kind) {
  if (book->layout == nullptr || !is_mine(book)) return Status::not_attached;
  if (bad_device(book, device)) return Status::no_such_device;
  if (!lock_book(book)) return Status::host_failure;
  Layout *layout = book->layout;
  ProcessRow &row = layout->processes[book->row];
  ProcessDevice &mine = row.devices[device];
  JobRow &job = layout->jobs[row.job];
  if (kind == Charge::allocation) ++mine.allocation_calls;
  if (bytes > room_now(layout, device, &job)) {
    reclaim_locked(book);
    if (bytes > room_now(layout, device, &job)) {
      ++mine.out_of_memory_count;
      mine.out_of_memory_bytes = bytes;
      ++job.devices[device].out_of_memory_count;
      job.devices[device].out_of_memory_bytes = bytes;
      unlock_book(book);
      return Status::out_of_memory;
    }
  }
  if (peak_may_count_the_dead(book, device, bytes)) reclaim_locked(book);
  DeviceRow &total = layout->devices[device];
  if (kind == Charge::context) {
    mine.context_bytes += bytes;
    if (mine.context_bytes > mine.context_peak_bytes) mine.context_peak_bytes = mine.context_bytes;
    total.context_bytes += bytes;
  } else {
    mine.allocated_bytes += bytes;
    if (mine.allocated_bytes > mine.allocated_peak_bytes) mine.allocated_peak_bytes = mine.allocated_bytes;
  }
  total.used_bytes += bytes;
  if (total.used_bytes > total.peak_bytes) total.peak_bytes = total.used_bytes;
  JobDevice &of_job = job.devices[device];
  of_job.used_bytes += bytes;
  if (of_job.used_bytes > of_job.peak_bytes) of_job.peak_bytes = of_job.used_bytes;
  unlock_book(book);
  return Status::ok;
}

void discharge(Book *book, int device, uint64_t bytes, Charge kind) {
  if (book->layout == nullptr || !is_mine(book) || bad_device(book, device)) return;
  if (!lock_book(book)) return;
  Layout *layout = book->layout;
  ProcessRow &row = layout->processes[book->row];
  uint64_t &held = kind == Charge::context ? row.devices[device].context_bytes : row.devices[device].allocated_bytes;
  if (bytes > held) bytes = held;
  held -= bytes;
  layout->devices[device].used_bytes -= bytes;
  if (kind == Charge::context) layout->devices[device].context_bytes -= bytes;
  layout->jobs[row.job].devices[device].used_bytes -= bytes;
  unlock_book(book);
}

Status available(Book *book, int device, uint64_t *free_bytes, uint64_t *total_bytes) {
  if (book->layout == nullptr) return Status::cannot_open;
  if (bad_device(book, device)) return Status::no_such_device;
  if (!lock_book(book)) return Status::host_failure;
  if (book->writable) reclaim_locked(book);
  const Layout *layout = book->layout;
  const JobRow *job = is_mine(book) ? &layout->jobs[layout->processes[book->row].job] : nullptr;
  *free_bytes = room_now(layout, device, job);
  *total_bytes = layout->devices[device].description.total_bytes;
  const uint64_t limit = job != nullptr ? job->devices[device].limit_bytes : 0;
  if (limit != 0 && (*total_bytes == 0 || limit < *total_bytes)) *total_bytes = limit;
  unlock_book(book);
  return Status::ok;
}

Status set_job_limit(Book *book, const char *job_key, int device, uint64_t limit_bytes) {
  if (book->layout == nullptr || !book->writable) return Status::cannot_open;
  if (bad_device(book, device)) return Status::no_such_device;
  if (!lock_book(book)) return Status::host_failure;
  const int job = find_or_make_job(book->layout, job_key == nullptr ? "" : job_key);
  if (job >= 0) book->layout->jobs[job].devices[device].limit_bytes = limit_bytes;
  unlock_book(book);
  return job >= 0 ? Status::ok : Status::full;
}

void count_launch(Book *book) {
  if (book->row >= 0) __atomic_add_fetch(&book->layout->processes[book->row].launches, 1, __ATOMIC_RELAXED);
}

void note_context_measured(Book *book, int device, uint64_t bytes) {
  if (book->layout == nullptr || !is_mine(book) || bad_device(book, device)) return;
  book->layout->processes[book->row].devices[device].context_measured_bytes = bytes;
}

void note_host_failure(Book *book, const char *what, int error_number, uint64_t bytes) {
  if (book->layout == nullptr || !is_mine(book)) return;
  ProcessRow &row = book->layout->processes[book->row];
  if (__atomic_fetch_add(&row.host_failures, 1, __ATOMIC_RELAXED) != 0) return;  // the first is the cause
  row.host_errno = error_number;
  row.host_failure_bytes = bytes;
  strncpy(row.host_failure, what, sizeof(row.host_failure) - 1);
}

void note_missing(Book *book, const char *function) {
  if (book->layout == nullptr || !book->writable || !lock_book(book)) return;
  Layout *layout = book->layout;
  for (uint32_t m = 0; m < kMaxMissing; ++m) {
    MissingRow &row = layout->missing[m];
    if (m == layout->missing_count) {
      strncpy(row.name, function, sizeof(row.name) - 1);
      ++layout->missing_count;
    }
    if (strncmp(row.name, function, sizeof(row.name) - 1) == 0) {
      ++row.calls;
      break;
    }
  }
  unlock_book(book);
}

}  // namespace gpumem::book
