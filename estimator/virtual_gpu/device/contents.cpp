// SPDX-License-Identifier: Apache-2.0
// The copy rules. Part of libgpumem_vgpu.so, preloaded into jobs. See Note [Contents] in contents.h.

#include "estimator/virtual_gpu/device/contents.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "estimator/virtual_gpu/device/memory.h"
#include "estimator/virtual_gpu/device/shared.h"
#include "estimator/virtual_gpu/device/state.h"

namespace gpumem::virtual_gpu {
namespace {

constexpr int kNotes = 256;             // the oldest is dropped for a new one
constexpr int kSamples = 64;            // 64-byte samples of a source's checksum
constexpr size_t kPage = 4096;
constexpr size_t kGiveBack = size_t{1} << 20;  // host destinations from here on are zeroed by giving pages back

struct Note {
  uintptr_t start;
  size_t size;         // 0: free
  const char *source;  // host source, nullptr for a fill
  uint64_t checksum;
  uint32_t pattern;
  uint64_t epoch;      // launches when noted
};

struct Notes {
  Lock lock;
  Note notes[kNotes];
  int next;
  int count;           // living notes: most calls find none
  uint64_t epoch;
};
constinit Notes notes = {};

// Small writes by range: which bytes are believed without a tracer. Direct-mapped; what is pushed out reads as zero.
struct Written {
  uintptr_t start;
  uint32_t size;
  uint32_t epoch;
};
constexpr size_t kWritten = 16384;
constinit Written *written = nullptr;  // made at the first small write
constinit Lock written_lock;

Written *written_slot(uintptr_t start) { return &written[(start * 0x9e3779b97f4a7c15ull >> 40) % kWritten]; }

uint32_t current_epoch();

void note_written(const void *address, size_t bytes) {
  if (contents_followed()) return;
  Locked locked(written_lock);
  if (written == nullptr) __atomic_store_n(&written, static_cast<Written *>(allocate_zeroed(kWritten * sizeof(Written))), __ATOMIC_RELAXED);
  if (written == nullptr) return;
  const uintptr_t start = reinterpret_cast<uintptr_t>(address);
  *written_slot(start) = {start, static_cast<uint32_t>(bytes), current_epoch()};
}

// Reads host memory that may be gone, without a fault.
bool read_host(const void *from, void *to, size_t bytes) {
  struct iovec local = {to, bytes}, remote = {const_cast<void *>(from), bytes};
  return syscall(SYS_process_vm_readv, getpid(), &local, 1ul, &remote, 1ul, 0ul) == static_cast<long>(bytes);
}

// FNV-1a over evenly spread samples; false when part of the source cannot be read.
bool checksum(const char *source, size_t bytes, bool trusted, uint64_t *sum) {
  uint64_t hash = 1469598103934665603ull;
  const size_t step = (bytes - 64) / (kSamples - 1);
  for (int s = 0; s < kSamples; ++s) {
    uint64_t sample[8];
    const char *at = source + static_cast<size_t>(s) * step;
    if (trusted)
      memcpy(sample, at, sizeof(sample));
    else if (!read_host(at, sample, sizeof(sample)))
      return false;
    for (uint64_t word : sample) hash = (hash ^ word) * 1099511628211ull;
  }
  *sum = hash;
  return true;
}

uint32_t current_epoch() { return static_cast<uint32_t>(__atomic_load_n(&notes.epoch, __ATOMIC_RELAXED)); }

// Whether small device contents may be given to the program; see Note [Contents].
bool believed(const void *address, size_t bytes) {
  if (contents_followed() || is_shared(address)) return true;
  if (__atomic_load_n(&written, __ATOMIC_RELAXED) == nullptr) return false;
  Locked locked(written_lock);
  const uintptr_t start = reinterpret_cast<uintptr_t>(address);
  const Written &exact = *written_slot(start);
  if (exact.start == start && exact.size == bytes) return true;
  const uint32_t epoch = current_epoch();
  if (exact.start == start && exact.size >= bytes && exact.epoch == epoch) return true;
  // A part of something written: any write since the last launch that holds the range.
  for (size_t w = 0; w < kWritten; ++w)
    if (written[w].epoch == epoch && written[w].size != 0 && written[w].start <= start && start + bytes <= written[w].start + written[w].size)
      return true;
  return false;
}

// Copies touched pages and zeroes for the others, without making pages of the source.
void copy_touched(char *to, const char *from, size_t bytes) {
  constexpr size_t kChunkPages = 1024;
  unsigned char resident[kChunkPages];
  while (bytes > 0) {
    const uintptr_t first = reinterpret_cast<uintptr_t>(from) / kPage * kPage;
    size_t chunk = kChunkPages * kPage - (reinterpret_cast<uintptr_t>(from) - first);
    if (chunk > bytes) chunk = bytes;
    const size_t pages = (reinterpret_cast<uintptr_t>(from) + chunk - first + kPage - 1) / kPage;
    const bool known = syscall(SYS_mincore, first, pages * kPage, resident) == 0;
    size_t done = 0;
    for (size_t p = 0; p < pages; ++p) {
      size_t size = kPage - (reinterpret_cast<uintptr_t>(from) + done) % kPage;
      if (size > chunk - done) size = chunk - done;
      if (!known || (resident[p] & 1)) memcpy(to + done, from + done, size);
      done += size;
    }
    to += chunk;
    from += chunk;
    bytes -= chunk;
  }
}

bool is_our_host_memory(RangeKind kind) { return kind == RangeKind::pinned || kind == RangeKind::host_pool; }

bool is_device(const void *pointer) { return on_device(find_range(pointer).kind); }

// Under the lock; others look at the count without it.
void count_notes(int by) { __atomic_add_fetch(&notes.count, by, __ATOMIC_RELAXED); }

// Ends notes that overlap; what remains of one on either side is kept where it is a fill or a checked source whole.
void end_notes_locked(uintptr_t start, size_t bytes) {
  if (notes.count == 0) return;
  for (Note &note : notes.notes) {
    if (note.size == 0 || note.start >= start + bytes || start >= note.start + note.size) continue;
    note.size = 0;
    count_notes(-1);
  }
}

void end_notes(const void *address, size_t bytes) {
  if (__atomic_load_n(&notes.count, __ATOMIC_RELAXED) == 0) return;
  Locked locked(notes.lock);
  end_notes_locked(reinterpret_cast<uintptr_t>(address), bytes);
}

void add_note(Note note) {
  Locked locked(notes.lock);
  note.epoch = __atomic_load_n(&notes.epoch, __ATOMIC_RELAXED);
  Note &slot = notes.notes[notes.next];
  notes.next = (notes.next + 1) % kNotes;
  if (slot.size == 0) count_notes(1);
  slot = note;
}

void fill_plain(char *to, uint32_t pattern, size_t offset, size_t bytes) {
  const unsigned char *byte = reinterpret_cast<const unsigned char *>(&pattern);
  if (byte[0] == byte[1] && byte[1] == byte[2] && byte[2] == byte[3]) {
    memset(to, byte[0], bytes);
    return;
  }
  for (size_t i = 0; i < bytes; ++i) to[i] = static_cast<char>(byte[(offset + i) % 4]);
}

// Whether [address, +bytes) lies in one private anonymous mapping of this process, whose pages may be given back.
bool is_private_anonymous(const void *address, size_t bytes) {
  FILE *maps = fopen("/proc/self/maps", "re");
  if (maps == nullptr) return false;
  const uintptr_t low = reinterpret_cast<uintptr_t>(address);
  unsigned long start = 0, end = 0, inode = 0;
  char flags[8], line[512];
  bool found = false;
  while (fgets(line, sizeof(line), maps) != nullptr) {
    if (sscanf(line, "%lx-%lx %7s %*x %*s %lu", &start, &end, flags, &inode) != 4 || low >= end) continue;
    found = low >= start && low + bytes <= end && inode == 0 && flags[1] == 'w' && flags[3] == 'p';
    break;
  }
  fclose(maps);
  return found;
}

// Lays what notes say over `to`, which holds the bytes of [from, from + bytes).
void apply_notes(char *to, const char *from, size_t bytes) {
  if (__atomic_load_n(&notes.count, __ATOMIC_RELAXED) == 0) return;
  Locked locked(notes.lock);
  const uintptr_t start = reinterpret_cast<uintptr_t>(from);
  const uint64_t epoch = __atomic_load_n(&notes.epoch, __ATOMIC_RELAXED);
  for (Note &note : notes.notes) {
    if (note.size == 0 || note.start >= start + bytes || start >= note.start + note.size) continue;
    if (!contents_followed() && note.epoch != epoch && !(note.start == start && note.size == bytes)) {
      note.size = 0;
      count_notes(-1);
      continue;
    }
    const uintptr_t low = note.start > start ? note.start : start;
    const uintptr_t high = note.start + note.size < start + bytes ? note.start + note.size : start + bytes;
    char *target = to + (low - start);
    if (note.source == nullptr) {
      fill_plain(target, note.pattern, low - note.start, high - low);
      continue;
    }
    uint64_t sum = 0;
    const char *from_host = note.source + (low - note.start);
    bool right = checksum(note.source, note.size, false, &sum) && sum == note.checksum;
    // A model of gigabytes that nobody has filled goes and comes without a page being made, of heap or of a mapped file:
    // `to` reads as zero already. What is in a file and was never read comes back as zero.
    if (right && high - low >= kGiveBack)
      copy_touched(target, from_host, high - low);
    else if (right)
      right = read_host(from_host, target, high - low);
    if (!right) {
      memset(target, 0, high - low);
      note.size = 0;
      count_notes(-1);
    }
  }
}

// Zeroes without touching pages where possible. `ours`: device or pinned memory, known to be private and anonymous.
void zero(void *address, size_t bytes, bool ours) {
  const uintptr_t start = reinterpret_cast<uintptr_t>(address);
  const uintptr_t low = (start + kPage - 1) / kPage * kPage, high = (start + bytes) / kPage * kPage;
  if (high > low && (ours ? bytes > kSmallCopy : high - low >= kGiveBack) &&
      (ours || is_private_anonymous(reinterpret_cast<void *>(low), high - low)) &&
      madvise(reinterpret_cast<void *>(low), high - low, ours && is_shared(address) ? MADV_REMOVE : MADV_DONTNEED) == 0) {
    memset(address, 0, low - start);
    memset(reinterpret_cast<void *>(high), 0, start + bytes - high);
    return;
  }
  memset(address, 0, bytes);
}

void to_host(char *to, const char *from, size_t bytes) {
  if (bytes <= kSmallCopy && believed(from, bytes)) {
    memmove(to, from, bytes);
  } else {
    zero(to, bytes, is_our_host_memory(find_range(to).kind));
    if (contents_followed()) copy_touched(to, from, bytes);
  }
  apply_notes(to, from, bytes);
}

}  // namespace

void drop_contents(const void *address, size_t bytes) { end_notes(address, bytes); }

void contents_after_launch() { __atomic_add_fetch(&notes.epoch, 1, __ATOMIC_RELAXED); }

void forget_contents(void *destination, size_t bytes) {
  if (destination == nullptr || bytes == 0) return;
  end_notes(destination, bytes);
  zero(destination, bytes, on_device(find_range(destination).kind));
}

void copy_contents(void *destination, const void *source, size_t bytes) {
  if (bytes == 0 || destination == source) return;
  const bool from_device = is_device(source), to_device = is_device(destination);
  char *to = static_cast<char *>(destination);
  const char *from = static_cast<const char *>(source);
  if (!to_device) {
    if (from_device)
      to_host(to, from, bytes);
    else
      memmove(to, from, bytes);
    return;
  }
  if (bytes <= kSmallCopy) {
    if (!from_device || believed(from, bytes))
      memmove(to, from, bytes);
    else
      memset(to, 0, bytes);
    if (from_device) apply_notes(to, from, bytes);
    end_notes(to, bytes);
    note_written(to, bytes);
    return;
  }
  forget_contents(to, bytes);
  if (from_device) return;
  uint64_t sum = 0;
  if (checksum(from, bytes, true, &sum)) add_note({reinterpret_cast<uintptr_t>(to), bytes, from, sum, 0, 0});
}

void fill_pattern(void *destination, uint32_t value, int element_bytes, size_t count) {
  const size_t bytes = count * static_cast<size_t>(element_bytes);
  if (bytes == 0) return;
  const uint32_t pattern = element_bytes == 1 ? (value & 0xff) * 0x01010101u : element_bytes == 2 ? (value & 0xffff) * 0x00010001u : value;
  if (!is_device(destination) || bytes <= kSmallCopy) {
    end_notes(destination, bytes);
    fill_plain(static_cast<char *>(destination), pattern, 0, bytes);
    if (bytes <= kSmallCopy) note_written(destination, bytes);
    return;
  }
  forget_contents(destination, bytes);
  if (pattern != 0) add_note({reinterpret_cast<uintptr_t>(destination), bytes, nullptr, 0, pattern, 0});
}

void fill_contents(void *destination, int byte, size_t bytes) { fill_pattern(destination, static_cast<uint32_t>(byte & 0xff), 1, bytes); }

void copy_rows(void *destination, size_t destination_pitch, const void *source, size_t source_pitch, size_t width, size_t height) {
  if (width == 0 || height == 0) return;
  if (destination_pitch == width && source_pitch == width) {
    copy_contents(destination, source, width * height);
    return;
  }
  const bool both_device = is_device(destination) && is_device(source);
  if (width * height > kSmallCopy && both_device) {
    for (size_t row = 0; row < height; ++row) end_notes(static_cast<char *>(destination) + row * destination_pitch, width);
    return;
  }
  for (size_t row = 0; row < height; ++row)
    copy_contents(static_cast<char *>(destination) + row * destination_pitch, static_cast<const char *>(source) + row * source_pitch, width);
}

}  // namespace gpumem::virtual_gpu
