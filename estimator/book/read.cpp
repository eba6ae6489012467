// SPDX-License-Identifier: Apache-2.0
// Reading a book: figures by device, process, job, and the functions that were missing.
// Runs in readers (gpumemd, gpumem-probe, nvidia-smi) and in NVML's answers.

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "estimator/book/layout.h"

namespace gpumem::book {
namespace {

void copy_process(const Book *book, int index, ProcessUse *use) {
  const ProcessRow &row = book->layout->processes[index];
  memset(use, 0, sizeof(*use));
  use->pid = row.pid;
  memcpy(use->comm, row.comm, sizeof(use->comm));
  if (row.job >= 0 && row.job < kMaxJobs) memcpy(use->job_key, book->layout->jobs[row.job].key, kJobKeySize);
  use->user_id = row.user_id;
  use->alive = row.state == kRowAttached;
  use->forked_after_use = row.forked_after_use != 0;
  use->attached_unix_us = row.attached_unix_us;
  for (int d = 0; d < kMaxDevices; ++d) {
    const ProcessDevice &from = row.devices[d];
    use->devices[d] = {from.context_bytes,        from.context_peak_bytes, from.context_measured_bytes,
                       from.allocated_bytes,      from.allocated_peak_bytes, from.allocation_calls,
                       from.out_of_memory_count,  from.out_of_memory_bytes};
  }
  use->launches = __atomic_load_n(&row.launches, __ATOMIC_RELAXED);
  use->host_failures = row.host_failures;
  use->host_errno = row.host_errno;
  use->host_failure_bytes = row.host_failure_bytes;
  memcpy(use->host_failure, row.host_failure, sizeof(use->host_failure));
  if (!use->alive) return;
  if (index == book->row && book->row_pid == getpid()) {
    use->visible_pid = row.pid;
    return;
  }
  // The kernel translates the lock holder's pid into the caller's namespace, and to 0 where it cannot.
  struct flock lock = {};
  lock.l_type = F_RDLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = kRowLockOffset + index;
  lock.l_len = 1;
  if (fcntl(book->fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK) {
    use->visible_pid = lock.l_pid > 0 ? lock.l_pid : 0;
  } else if (!book->writable) {
    use->alive = false;  // a reader that may not take back what the dead held still tells them apart
  }
}

void copy_job(const Layout *layout, int index, JobUse *use) {
  const JobRow &row = layout->jobs[index];
  memset(use, 0, sizeof(*use));
  memcpy(use->job_key, row.key, kJobKeySize);
  for (const ProcessRow &process : layout->processes)
    if (process.state == kRowAttached && process.job == index) ++use->processes_alive;
  for (int d = 0; d < kMaxDevices; ++d) {
    const JobDevice &from = row.devices[d];
    use->devices[d] = {from.used_bytes, from.peak_bytes, from.limit_bytes, from.out_of_memory_count,
                       from.out_of_memory_bytes};
  }
}

bool begin(Book *book, bool take_back) {
  if (book->layout == nullptr || !lock_book(book)) return false;
  if (take_back && book->writable) reclaim_locked(book);
  return true;
}

}  // namespace

Status device_use(Book *book, int device, DeviceUse *use) {
  memset(use, 0, sizeof(*use));
  if (book->layout == nullptr) return Status::cannot_open;
  if (device < 0 || device >= device_count(*book)) return Status::no_such_device;
  if (!begin(book, true)) return Status::host_failure;
  const DeviceRow &row = book->layout->devices[device];
  use->used_bytes = row.used_bytes;
  use->peak_bytes = row.peak_bytes;
  use->context_bytes = row.context_bytes;
  unlock_book(book);
  return Status::ok;
}

// The lock is given back around every call of `each`: a callback may use the book itself.
Status for_each_process(Book *book, void (*each)(void *context, const ProcessUse &process), void *context) {
  if (!begin(book, true)) return Status::host_failure;
  for (int r = 0; r < kMaxProcesses; ++r) {
    if (book->layout->processes[r].state == kRowFree) continue;
    ProcessUse use;
    copy_process(book, r, &use);
    unlock_book(book);
    each(context, use);
    if (!lock_book(book)) return Status::host_failure;
  }
  unlock_book(book);
  return Status::ok;
}

Status for_each_job(Book *book, void (*each)(void *context, const JobUse &job), void *context) {
  if (!begin(book, true)) return Status::host_failure;
  for (int j = 0; j < kMaxJobs; ++j) {
    if (!book->layout->jobs[j].in_use) continue;
    JobUse use;
    copy_job(book->layout, j, &use);
    unlock_book(book);
    each(context, use);
    if (!lock_book(book)) return Status::host_failure;
  }
  unlock_book(book);
  return Status::ok;
}

Status for_each_missing(Book *book, void (*each)(void *context, const MissingFunction &missing), void *context) {
  if (!begin(book, false)) return Status::host_failure;
  for (uint32_t m = 0; m < book->layout->missing_count && m < kMaxMissing; ++m) {
    MissingFunction missing;
    memcpy(missing.name, book->layout->missing[m].name, kNameSize);
    missing.calls = book->layout->missing[m].calls;
    unlock_book(book);
    each(context, missing);
    if (!lock_book(book)) return Status::host_failure;
  }
  unlock_book(book);
  return Status::ok;
}

Status job_use(Book *book, const char *job_key, JobUse *use) {
  memset(use, 0, sizeof(*use));
  if (!begin(book, true)) return Status::host_failure;
  for (int j = 0; j < kMaxJobs; ++j) {
    const JobRow &row = book->layout->jobs[j];
    if (!row.in_use || strncmp(row.key, job_key, kJobKeySize - 1) != 0) continue;
    copy_job(book->layout, j, use);
    break;
  }
  unlock_book(book);
  return Status::ok;
}

}  // namespace gpumem::book
