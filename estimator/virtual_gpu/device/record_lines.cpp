// SPDX-License-Identifier: Apache-2.0
// Lines of a probe's record. See record_lines.h.
#include "estimator/virtual_gpu/device/record_lines.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "estimator/virtual_gpu/internal.h"

namespace gpumem::virtual_gpu {
namespace {

// A program that calls cudaMalloc without end must not fill the disk: 12 MB. The last line says that it is the last.
constexpr uint32_t kMostLines = 100000;

constinit Lock clock_lock;
constinit uint64_t unix_minus_monotonic_ns = 0;
constinit uint32_t lines_written = 0;

uint64_t read_clock_ns(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

uint64_t record_time_ns() {
  Locked locked(clock_lock);
  const uint64_t monotonic_ns = read_clock_ns(CLOCK_MONOTONIC);
  if (unix_minus_monotonic_ns == 0) unix_minus_monotonic_ns = read_clock_ns(CLOCK_REALTIME) - monotonic_ns;
  return unix_minus_monotonic_ns + monotonic_ns;
}

bool is_recorded() {
  const char *directory = getenv("GPUMEM_RECORD");
  return directory != nullptr && directory[0] == '/';
}

// `more`: the line's own keys.
void write_memory_line(const char *more) {
  const uint32_t before = __atomic_fetch_add(&lines_written, 1, __ATOMIC_RELAXED);
  if (before > kMostLines) {
    __atomic_store_n(&lines_written, kMostLines + 1, __ATOMIC_RELAXED);
    return;
  }
  char line[256];
  const int length = before == kMostLines
                         ? snprintf(line, sizeof line, "{\"event\": \"memory_cut\"}\n")
                         : snprintf(line, sizeof line, "{\"event\": \"memory\", \"unix_ns\": %llu, %s}\n", static_cast<unsigned long long>(record_time_ns()), more);
  if (length > 0 && length < static_cast<int>(sizeof line)) write_record_line("memory", line, static_cast<size_t>(length));
}

void write_change(const char *what, int device, uint64_t bytes, uintptr_t address) {
  if (!is_recorded()) return;
  char keys[128];
  snprintf(keys, sizeof keys, "\"device\": %d, \"%s\": %llu, \"address\": %llu", device, what, static_cast<unsigned long long>(bytes),
           static_cast<unsigned long long>(address));
  write_memory_line(keys);
}

}  // namespace

void write_record_line(const char *file, const char *line, size_t bytes) {
  if (!is_recorded()) return;
  char path[4096];
  const int length = snprintf(path, sizeof path, "%s/%s-%d.jsonl", getenv("GPUMEM_RECORD"), file, static_cast<int>(getpid()));
  if (length <= 0 || length >= static_cast<int>(sizeof path)) return;
  const int descriptor = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (descriptor < 0) return;  // the record's directory is the probe's affair
  const ssize_t written = write(descriptor, line, bytes);
  (void)written;
  close(descriptor);
}

void record_taken(int device, uint64_t bytes, uintptr_t what) { write_change("taken_bytes", device, bytes, what); }

void record_returned(int device, uint64_t bytes, uintptr_t what) { write_change("returned_bytes", device, bytes, what); }

void record_mapped(uintptr_t handle, uintptr_t address) {
  if (!is_recorded()) return;
  char keys[128];
  snprintf(keys, sizeof keys, "\"handle\": %llu, \"address\": %llu", static_cast<unsigned long long>(handle), static_cast<unsigned long long>(address));
  write_memory_line(keys);
}

}  // namespace gpumem::virtual_gpu
