// SPDX-License-Identifier: Apache-2.0
// The book: one mapped file that describes virtual devices and holds every account of their memory.
// Used by the preloaded libraries (compiled for libc alone) and by ordinary programs (libbook.a), the same sources.
//
// Purpose. All processes that share a device write one book: a probe's processes (private_book), all jobs of a
// host (shared_book), or one real job under its meter (meter). The file outlives its writers: after `_exit` or
// SIGKILL everything is still there to read, and what a dead process held is taken back by whoever looks next.
//
// Ownership and threads. A Book is a plain value owned by the caller, one per process and file; nothing here
// allocates heap memory or throws. Calls on one Book may come from any thread. After fork() the child calls
// after_fork() (or just attach()): it inherits the mapping, not the parent's place in the book.
// One process must not have two Books open on one file: POSIX file locks end when any descriptor of it is closed.
//
// Locking. Writers hold a POSIX lock on one byte past the file's end (it dies with its holder, whatever kills it)
// and, within the process, a futex. A change marks the book dirty first; whoever then finds it dirty recomputes all
// totals from the processes' own rows. Each attached process holds the lock of its row's byte as proof of life,
// which other pid namespaces can see too.
//
// Files. create() takes the mode: 0600 for a private book or a meter book of one user, 0666 for a shared book
// whose directory decides who reaches it (jobs of several users map and lock it). Never put one under /tmp or
// /dev/shm: job scripts clean those. Whoever can write a book can lie in it; limits that matter are enforced elsewhere too.
//
// Units: bytes, microseconds where named. Errors: Status; messages with path and cause for create() and open().
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

namespace gpumem::book {

constexpr uint32_t kVersion = 1;           // of the file's layout; open() refuses another
constexpr int kMaxDevices = 16;            // devices of one book
constexpr int kMaxProcesses = 512;         // rows; rows of ended processes are reused, oldest first
constexpr int kMaxJobs = 128;              // rows; rows of jobs without processes are reused, oldest first
constexpr int kMaxMissing = 64;            // names of functions that programs called and we lack
constexpr size_t kNameSize = 96;           // a device's or function's name with its NUL
constexpr size_t kJobKeySize = 64;         // a job's key with its NUL
constexpr size_t kCudnnTextSize = 2048;    // cuDNN's device description (JSON text) with its NUL

enum class Status : int {
  ok = 0,
  out_of_memory,    // the device, or the job's limit, has no room: what the program must be told
  no_such_device,
  not_attached,     // attach() first
  full,             // every row belongs to a living process
  cannot_open,      // the operating system refused; errno tells
  not_a_book,       // the file is no book of this version
  host_failure,     // a lock or mapping failed for a reason of the host's
};

enum class Accounting : uint32_t { private_book = 1, shared_book = 2, meter = 3 };
enum class Charge { context, allocation };

// What a device is. Zero means "not known": answers that need it become the API's "not supported".
struct DeviceDescription {
  char name[kNameSize];            // as NVML prints it: "NVIDIA GeForce RTX 3060"
  char uuid[48];                   // "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", or "MIG-…" if mig
  char pci_bus_id[24];             // "00000000:01:00.0"
  char serial[24];
  uint32_t compute_major, compute_minor;
  uint32_t sm_count;               // multiprocessors
  uint32_t sm_clock_khz, memory_clock_khz;
  uint32_t memory_bus_bits;
  uint32_t l2_bytes;
  uint32_t shared_per_block, shared_per_block_optin, shared_per_sm, shared_reserved_per_block;
  uint32_t registers_per_block, registers_per_sm;
  uint32_t threads_per_block, threads_per_sm, blocks_per_sm, warp_size;
  uint32_t mig;                    // 1: this device is a MIG instance
  uint32_t ecc;                    // 1: ECC is on
  uint32_t power_limit_mw;
  uint32_t copy_engines;           // that work beside the multiprocessors
  uint32_t reserved_words[5];
  uint64_t total_bytes;            // cudaMemGetInfo's and cudaDeviceProp's total
  uint64_t usable_bytes;           // all that contexts and allocations can take; 0: unlimited (meter)
  uint64_t context_bytes;          // charged to each process at its first real use of the device
  uint64_t nvml_total_bytes;       // NVML's total (total_bytes plus what the driver keeps)
  uint64_t nvml_reserved_bytes;    // NVML's reserved
  uint64_t reserved_numbers[8];
  char driver_version[24];         // "550.54.15"
  uint32_t cuda_version;           // 12040: what cudaDriverGetVersion says
  uint32_t reserved_word;
  char cudnn_device_json[kCudnnTextSize];  // for cuDNN's device-property descriptor; empty: not known
};

struct Layout;  // the file; layout.h

struct Book {
  Layout *layout = nullptr;
  int fd = -1;
  int row = -1;            // this process's row, -1 when not attached
  pid_t row_pid = 0;       // the process that attached; another pid means a fork
  bool writable = false;
  uint32_t futex = 0;      // the process's own lock; see lock.h
  dev_t file_device = 0;   // which file is mapped: a descriptor may be closed behind our back
  ino_t file_inode = 0;
  char path[4096] = {};
};

// Makes a new book at `path` (replacing nothing: it must not exist) with `count` devices and the file mode `mode`
// (umask does not apply). `error` gets one sentence on failure.
Status create(const char *path, const DeviceDescription *devices, int count, Accounting accounting, mode_t mode,
              char *error, size_t error_size);

// Maps an existing book. Read-only books can be read and never attached. The Book must be in its initial state.
Status open(Book *book, const char *path, bool writable, char *error, size_t error_size);
// Unmaps; an attached process's row ends and what it held is taken back.
void close(Book *book);

Accounting accounting(const Book &book);
int device_count(const Book &book);
const DeviceDescription *description(const Book &book, int device);  // nullptr when out of range

// Takes a row for the calling process under `job_key` (nullptr or "": the job ""). Idempotent; after a fork it takes a new row.
Status attach(Book *book, const char *job_key);
// Marks this process's row as ended, keeping its figures, and takes back what it held.
void detach(Book *book);
// In a forked child, before anything else: forgets the parent's row. Safe whatever locks the parent's threads held.
void after_fork(Book *book);

// Charges bytes to the calling process on a device, or says out_of_memory and counts the refusal. A request that
// finds no room, or would make a new peak, first takes back what dead processes held. Charge::allocation counts as a cudaMalloc-like call.
Status charge(Book *book, int device, uint64_t bytes, Charge kind);
void discharge(Book *book, int device, uint64_t bytes, Charge kind);

// What a new allocation on the device could take at most: the device's room and the job's limit; and the total to
// show beside it (the limit, where that is smaller than the device).
Status available(Book *book, int device, uint64_t *free_bytes, uint64_t *total_bytes);

// A job's limit on a device in bytes, 0 for none. Creates the job's row if there is none.
Status set_job_limit(Book *book, const char *job_key, int device, uint64_t limit_bytes);

// Cheap notes in the calling process's row; no lock is taken. They do nothing when not attached.
void count_launch(Book *book);
void note_context_measured(Book *book, int device, uint64_t bytes);  // meter: NVML's figure for this process
void note_host_failure(Book *book, const char *what, int error_number, uint64_t bytes);
// Adds a function's name to the book's table of missing functions (no attach needed).
void note_missing(Book *book, const char *function);

// Takes back what dead processes held. Returns how many rows ended by it. Needs a writable book.
int reclaim(Book *book);

// --- Reading. All of it works on read-only books; on writable ones the dead are taken back first. ---

struct DeviceUse {
  uint64_t used_bytes, peak_bytes;                  // contexts included
  uint64_t context_bytes;                           // now
};

struct ProcessUse {
  pid_t pid;                 // as the process itself sees it
  pid_t visible_pid;         // as the caller's pid namespace sees it while it lives; 0 when not visible
  char comm[16];
  char job_key[kJobKeySize];
  uint32_t user_id;
  bool alive;
  bool forked_after_use;     // its parent had used the devices before the fork
  int64_t attached_unix_us;  // when it attached, microseconds
  struct Device {
    uint64_t context_bytes;         // 0: no context was charged
    uint64_t context_peak_bytes;
    uint64_t context_measured_bytes;
    uint64_t allocated_bytes;       // now, without context
    uint64_t allocated_peak_bytes;
    uint64_t allocation_calls;
    uint64_t out_of_memory_count;
    uint64_t out_of_memory_bytes;   // size of the last refused request
  } devices[kMaxDevices];
  uint64_t launches;
  uint32_t host_failures;
  int32_t host_errno;
  uint64_t host_failure_bytes;
  char host_failure[64];
};

struct JobUse {
  char job_key[kJobKeySize];
  int processes_alive;
  struct Device {
    uint64_t used_bytes, peak_bytes, limit_bytes;
    uint64_t out_of_memory_count, out_of_memory_bytes;
  } devices[kMaxDevices];
};

struct MissingFunction {
  char name[kNameSize];
  uint64_t calls;
};

Status device_use(Book *book, int device, DeviceUse *use);
// Each calls `each` once a row, in the order of attachment slots, from one consistent view per row.
Status for_each_process(Book *book, void (*each)(void *context, const ProcessUse &process), void *context);
Status for_each_job(Book *book, void (*each)(void *context, const JobUse &job), void *context);
Status for_each_missing(Book *book, void (*each)(void *context, const MissingFunction &missing), void *context);
Status job_use(Book *book, const char *job_key, JobUse *use);  // not found: all zeros, no_such_device never

const char *status_text(Status status);

}  // namespace gpumem::book
