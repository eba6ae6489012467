// SPDX-License-Identifier: Apache-2.0
// How a book's file is laid out, and its two locks. Private to estimator/book.
// Every number is in the host's byte order: a book never leaves its host. Change kVersion with any change here.
#pragma once

#include "estimator/book/book.h"

namespace gpumem::book {

constexpr char kMagic[8] = {'G', 'P', 'U', 'M', 'B', 'O', 'O', 'K'};

// Locks lie beyond any byte of the file: they guard names, not contents.
constexpr off_t kBookLockOffset = off_t{1} << 40;
constexpr off_t kRowLockOffset = (off_t{1} << 40) + 1;  // + row

enum RowState : uint32_t { kRowFree = 0, kRowAttached = 1, kRowEnded = 2 };

struct ProcessDevice {
  uint64_t context_bytes, context_peak_bytes, context_measured_bytes;
  uint64_t allocated_bytes, allocated_peak_bytes;
  uint64_t allocation_calls, out_of_memory_count, out_of_memory_bytes;
};

struct ProcessRow {
  uint32_t state;
  int32_t job;                 // row in jobs
  int32_t pid;                 // in its own pid namespace
  uint32_t user_id;
  uint64_t pid_namespace;      // inode of /proc/self/ns/pid; 0 not known
  uint64_t start_ticks;        // field 22 of /proc/PID/stat; 0 not known
  uint64_t order;              // attachment number, for reuse of the oldest
  int64_t attached_unix_us;
  char comm[16];
  uint64_t launches;
  uint32_t forked_after_use;
  uint32_t host_failures;
  int32_t host_errno;
  uint32_t reserved;
  uint64_t host_failure_bytes;
  char host_failure[64];
  ProcessDevice devices[kMaxDevices];
};

struct JobDevice {
  uint64_t used_bytes, peak_bytes, limit_bytes, out_of_memory_count, out_of_memory_bytes;
};

struct JobRow {
  uint32_t in_use;
  uint32_t reserved;
  uint64_t order;
  char key[kJobKeySize];
  JobDevice devices[kMaxDevices];
};

struct DeviceRow {
  DeviceDescription description;
  uint64_t used_bytes, peak_bytes, context_bytes;
};

struct MissingRow {
  char name[kNameSize];
  uint64_t calls;
};

struct Layout {
  char magic[8];
  uint32_t version;
  uint32_t layout_bytes;   // sizeof(Layout): guards against a build that differs
  uint32_t accounting;
  uint32_t device_count;
  uint32_t dirty;          // 1 while a holder of the lock changes accounts
  uint32_t missing_count;
  uint64_t next_order;
  DeviceRow devices[kMaxDevices];
  JobRow jobs[kMaxJobs];
  MissingRow missing[kMaxMissing];
  ProcessRow processes[kMaxProcesses];
};

// Takes the book's lock (and repairs totals a dead holder left half-changed); false: the host refused, errno tells.
bool lock_book(Book *book);
void unlock_book(Book *book);

// Both with the lock held.
int reclaim_locked(Book *book);
void end_row_locked(Layout *layout, int row);

}  // namespace gpumem::book
