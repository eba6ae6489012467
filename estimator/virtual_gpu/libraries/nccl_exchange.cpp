// SPDX-License-Identifier: Apache-2.0
// Small values between the ranks of one host: a mapped file for each communicator; runs in the job's processes.
//
// Note [Exchange]
// The file is in /dev/shm (where NCCL's own are), else in the book's directory, named by the communicator's unique id, and
// removed once all ranks have mapped it. Each rank posts into kSlots slots in turn; a slot is used again when every rank has
// said done_with() its last contents. Pairs of ranks have mailboxes of the same kind. Counters are read with acquire and
// written with release; nobody holds a lock. Each rank's process holds a POSIX lock on one byte past the end: it ends with
// the process, whatever ends it, and is not inherited by forked workers.
// One process maps a file once, however many ranks it holds (POSIX locks end with any descriptor's close).
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "estimator/virtual_gpu/libraries/nccl.h"

namespace gpumem::virtual_gpu::libraries::nccl {
namespace {

constexpr uint64_t kSlots = 4;
constexpr size_t kSlotBytes = kCarriedIntegers;
constexpr uint64_t kMails = 4;
constexpr size_t kMailBytes = kCarriedFloats;

struct RankState {
  uint64_t joined;  // process_mark() of its process
  uint64_t left;
  uint64_t posted;  // contributions there are
  uint64_t done;    // operations that this rank has read all it needs of
};
struct MailState {
  uint64_t sent, received;
};
struct Header {
  RankState ranks[kMostRanks];
  MailState mails[kMostRanks][kMostRanks];
};

uint64_t load(const uint64_t &word) { return __atomic_load_n(&word, __ATOMIC_ACQUIRE); }
void store(uint64_t &word, uint64_t value) { __atomic_store_n(&word, value, __ATOMIC_RELEASE); }

size_t size_for(int ranks) {
  const size_t n = static_cast<size_t>(ranks);
  return sizeof(Header) + n * kSlots * kSlotBytes + n * n * kMails * kMailBytes;
}

}  // namespace

struct Exchange {
  Exchange *next;
  char id[kIdSize];
  Header *header;
  int ranks, fd, users;
  char path[512];

  char *slot(int rank, uint64_t sequence) {
    return reinterpret_cast<char *>(header + 1) + (static_cast<size_t>(rank) * kSlots + sequence % kSlots) * kSlotBytes;
  }
  char *mail(int from, int to, uint64_t sequence) {
    char *mails = reinterpret_cast<char *>(header + 1) + static_cast<size_t>(ranks) * kSlots * kSlotBytes;
    return mails + ((static_cast<size_t>(from) * static_cast<size_t>(ranks) + static_cast<size_t>(to)) * kMails + sequence % kMails) * kMailBytes;
  }
};

namespace {

Lock exchanges_lock;
Exchange *exchanges = nullptr;  // mapped in this process
pid_t exchanges_of = 0;

bool open_file(Exchange *exchange) {
  const char *book = getenv("GPUMEM_BOOK");
  const char *slash = book != nullptr ? strrchr(book, '/') : nullptr;
  for (int place = 0; place < 2; place++) {
    if (place == 0)
      snprintf(exchange->path, sizeof exchange->path, "/dev/shm/gpumem-nccl-%s", exchange->id);
    else if (slash != nullptr)
      snprintf(exchange->path, sizeof exchange->path, "%.*s/nccl-%s", static_cast<int>(slash - book), book, exchange->id);
    else
      return false;
    exchange->fd = ::open(exchange->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (exchange->fd >= 0) return true;
  }
  return false;
}

bool map_file(Exchange *exchange) {
  const size_t bytes = size_for(exchange->ranks);
  if (!open_file(exchange)) return false;
  struct stat found;  // fstat's symbol is newer than glibc 2.17
  if (syscall(SYS_fstat, exchange->fd, &found) != 0 || found.st_uid != geteuid() || (found.st_size != 0 && static_cast<size_t>(found.st_size) != bytes) ||
      (found.st_size == 0 && ftruncate(exchange->fd, static_cast<off_t>(bytes)) != 0)) {
    ::close(exchange->fd);
    return false;
  }
  void *mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, exchange->fd, 0);
  if (mapped == MAP_FAILED) {
    ::close(exchange->fd);
    return false;
  }
  exchange->header = static_cast<Header *>(mapped);
  return true;
}

// The exchange, mapped and counted; nullptr if the host has no room for it.
Exchange *take(const char *id, int ranks) {
  Locked locked(exchanges_lock);
  if (exchanges_of != getpid()) {  // a forked child knows none: it may not use CUDA either
    exchanges_of = getpid();
    exchanges = nullptr;
  }
  for (Exchange *known = exchanges; known != nullptr; known = known->next) {
    if (strcmp(known->id, id) != 0 || known->ranks != ranks) continue;
    known->users++;
    return known;
  }
  Exchange *exchange = static_cast<Exchange *>(allocate_zeroed(sizeof(Exchange)));
  if (exchange == nullptr) return nullptr;
  snprintf(exchange->id, sizeof exchange->id, "%s", id);
  exchange->ranks = ranks;
  if (!map_file(exchange)) {
    release_zeroed(exchange);
    return nullptr;
  }
  exchange->users = 1;
  exchange->next = exchanges;
  exchanges = exchange;
  return exchange;
}

void give(Exchange *exchange) {
  Locked locked(exchanges_lock);
  if (--exchange->users > 0) return;
  for (Exchange **link = &exchanges; *link != nullptr; link = &(*link)->next) {
    if (*link != exchange) continue;
    *link = exchange->next;
    break;
  }
  munmap(exchange->header, size_for(exchange->ranks));
  ::close(exchange->fd);
  release_zeroed(exchange);
}

struct flock rank_lock(int rank, int ranks) {
  struct flock lock;
  memset(&lock, 0, sizeof lock);
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(size_for(ranks)) + rank;
  lock.l_len = 1;
  return lock;
}

uint64_t process_mark() { return static_cast<uint64_t>(getpid()) + 1; }

void pause_briefly() {
  struct timespec time = {0, 200 * 1000};
  nanosleep(&time, nullptr);
}

}  // namespace

void new_exchange_id(char *id) {
  unsigned char bytes[12] = {};
  const int fd = ::open("/dev/urandom", O_RDONLY | O_CLOEXEC);
  const bool random = fd >= 0 && read(fd, bytes, sizeof bytes) == static_cast<ssize_t>(sizeof bytes);
  if (fd >= 0) ::close(fd);
  if (!random) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const uint64_t number = static_cast<uint64_t>(now.tv_nsec) << 32 ^ static_cast<uint64_t>(now.tv_sec) << 20 ^ static_cast<uint64_t>(getpid());
    memcpy(bytes, &number, sizeof number);
  }
  for (size_t i = 0; i < sizeof bytes; i++) snprintf(id + 2 * i, 3, "%02x", static_cast<unsigned>(bytes[i]));
}

void derive_exchange_id(char *derived, const char *id, uint64_t number) {
  uint64_t hash = 1469598103934665603ull;
  for (const char *at = id; *at != '\0'; at++) hash = (hash ^ static_cast<unsigned char>(*at)) * 1099511628211ull;
  for (int i = 0; i < 8; i++) hash = (hash ^ (number >> (8 * i) & 255)) * 1099511628211ull;
  snprintf(derived, kIdSize, "%016llx%04llx", static_cast<unsigned long long>(hash), static_cast<unsigned long long>(number & 0xffff));
}

Exchange *join_exchange(const char *id, int ranks, int rank, bool all_here) {
  if (ranks > kMostRanks) return nullptr;
  Exchange *exchange = take(id, ranks);
  if (exchange == nullptr) return nullptr;
  struct flock lock = rank_lock(rank, ranks);
  fcntl(exchange->fd, F_SETLK, &lock);
  store(exchange->header->ranks[rank].joined, process_mark());
  if (all_here) {
    if (rank == ranks - 1) unlink(exchange->path);
    return exchange;
  }
  struct timespec began, now;
  clock_gettime(CLOCK_MONOTONIC, &began);
  for (;;) {
    int missing = 0;
    for (int i = 0; i < ranks; i++) missing += load(exchange->header->ranks[i].joined) == 0;
    if (missing == 0) break;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_sec - began.tv_sec > kPatience_s) {
      unlink(exchange->path);
      give(exchange);
      return nullptr;
    }
    pause_briefly();
  }
  if (rank == 0) unlink(exchange->path);
  return exchange;
}

void leave_exchange(Exchange *exchange, int rank) {
  // In order: what was posted stays readable, and nobody waits for a reader that has gone.
  store(exchange->header->ranks[rank].left, 1);
  give(exchange);
}

bool is_gone(Exchange *exchange, int rank) {
  const RankState &state = exchange->header->ranks[rank];
  if (load(state.left) != 0) return true;
  // One's own locks never conflict, so a rank that this process holds would look gone.
  if (load(state.joined) == process_mark()) return false;
  struct flock lock = rank_lock(rank, exchange->ranks);
  return fcntl(exchange->fd, F_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
}

bool post(Exchange *exchange, int rank, uint64_t sequence, const void *data, size_t bytes) {
  for (int i = 0; i < exchange->ranks; i++) {
    RankState &other = exchange->header->ranks[i];
    if (load(other.done) + kSlots <= sequence && load(other.left) == 0) return false;
  }
  if (bytes > 0) copy_contents(exchange->slot(rank, sequence), data, bytes < kSlotBytes ? bytes : kSlotBytes);
  store(exchange->header->ranks[rank].posted, sequence + 1);
  return true;
}

const char *posted(Exchange *exchange, int rank, uint64_t sequence) {
  return load(exchange->header->ranks[rank].posted) > sequence ? exchange->slot(rank, sequence) : nullptr;
}

void done_with(Exchange *exchange, int rank, uint64_t sequence) { store(exchange->header->ranks[rank].done, sequence + 1); }

bool send_mail(Exchange *exchange, int from, int to, uint64_t sequence, const void *data, size_t bytes) {
  MailState &box = exchange->header->mails[from][to];
  if (load(box.received) + kMails <= sequence) return false;
  if (bytes > 0) copy_contents(exchange->mail(from, to, sequence), data, bytes < kMailBytes ? bytes : kMailBytes);
  store(box.sent, sequence + 1);
  return true;
}

const char *mail(Exchange *exchange, int from, int to, uint64_t sequence) {
  return load(exchange->header->mails[from][to].sent) > sequence ? exchange->mail(from, to, sequence) : nullptr;
}

void done_with_mail(Exchange *exchange, int from, int to, uint64_t sequence) { store(exchange->header->mails[from][to].received, sequence + 1); }

}  // namespace gpumem::virtual_gpu::libraries::nccl
