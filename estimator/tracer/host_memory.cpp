// SPDX-License-Identifier: Apache-2.0
// See host_memory.h.

#include "host_memory.h"

#include "storage_states.h"

#include <c10/core/CPUAllocator.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <mutex>
#include <vector>

namespace gpumem::tracer {
namespace {

bool maps_file(const void* address);

bool is_plain_heap(const c10::DataPtr& memory) { return memory.get_deleter() == c10::GetDefaultCPUAllocator()->raw_deleter(); }

}  // namespace

bool make_zero(const at::Tensor& t) {
  static const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  if (!is_plain_heap(storage_of(t)->data_ptr())) return false;
  char* begin = bytes_of(t) + t.storage_offset() * t.itemsize();
  char* end = begin + t.nbytes();
  char* first_page = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(begin) + page - 1) & ~(page - 1));
  char* last_page = reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(end) & ~(page - 1));
  if (last_page <= first_page || madvise(first_page, last_page - first_page, MADV_DONTNEED) != 0) return false;
  std::memset(begin, 0, first_page - begin);
  std::memset(last_page, 0, end - last_page);
  return true;
}

bool is_file_mapped(const c10::DataPtr& storage, const void* address) {
  return !is_plain_heap(storage) && maps_file(address);
}

struct Mapping {
  uintptr_t start;
  size_t size;
  int file;
};
constexpr size_t kMappings = 64;  // the oldest is forgotten: its holes are then written as zeros
Mapping mappings[kMappings];
size_t mappings_made = 0;
std::mutex& mappings_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

// Pages that are read through a mapping are there to stay where files are kept in memory (a sandbox's), holes or not; those of
// /dev/zero, mapped privately, are the kernel's one page of zeros. What reads whole files: torch.save's checksum before PyTorch 2.6.
void map_holes_as_zeros(char* address, off_t size, int file) {
  constexpr off_t kLeast = 1 << 20, kPage = 4096;
  const int zeros = ::open("/dev/zero", O_RDONLY | O_CLOEXEC);
  if (zeros < 0) return;
  for (off_t data = 0; data < size;) {
    off_t hole = ::lseek(file, data, SEEK_HOLE);
    if (hole < 0 || hole >= size) break;
    data = ::lseek(file, hole, SEEK_DATA);
    if (data < 0 && errno != ENXIO) break;
    if (data < 0 || data > size) data = size;
    hole = (hole + kPage - 1) & ~(kPage - 1);
    const off_t end = data & ~(kPage - 1);
    if (end - hole < kLeast) continue;
    const int flags = MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE;
    if (::mmap(address + hole, end - hole, PROT_READ | PROT_WRITE, flags, zeros, 0) == MAP_FAILED) break;
  }
  ::close(zeros);
}

void note_mapping(const void* address, size_t size, int file) {
  map_holes_as_zeros(static_cast<char*>(const_cast<void*>(address)), static_cast<off_t>(size), file);
  std::lock_guard<std::mutex> hold(mappings_mutex());
  Mapping& slot = mappings[mappings_made++ % kMappings];
  if (slot.size) ::close(slot.file);
  slot = {reinterpret_cast<uintptr_t>(address), size, file};
}

// The latest mapping that holds an address: a later one at the same place means that the older is gone.
Mapping mapping_of(const char* address) {
  std::lock_guard<std::mutex> hold(mappings_mutex());
  const auto at = reinterpret_cast<uintptr_t>(address);
  for (size_t i = mappings_made; i-- > 0 && i + kMappings >= mappings_made;) {
    const Mapping& m = mappings[i % kMappings];
    if (m.start <= at && at < m.start + m.size) return m;
  }
  return {0, 0, -1};
}

// Where a file has data, asked from its beginning to its end.
class Holes {
 public:
  explicit Holes(int file) : file_(file) {}
  bool covers(off_t offset, off_t size) {
    if (offset < begin_ || offset >= end_) {
      begin_ = offset;
      end_ = ::lseek(file_, offset, SEEK_DATA);
      if (end_ < 0) end_ = errno == ENXIO ? std::numeric_limits<off_t>::max() : offset;
    }
    return offset + size <= end_;
  }

 private:
  int file_;
  off_t begin_ = 0, end_ = 0;  // a hole
};

// A page is untouched where the page table has no entry: bits 63 (present) and 62 (swapped) of /proc/self/pagemap.
bool write_sparse(int file, const char* bytes, size_t size) {
  constexpr size_t kPage = 4096, kChunkPages = 16384;
  constexpr uint64_t kTouched = uint64_t{3} << 62, kOfFile = uint64_t{1} << 61;
  const bool in_file = maps_file(bytes);
  const Mapping mapping = in_file ? mapping_of(bytes) : Mapping{0, 0, -1};
  Holes holes(mapping.file);
  static const std::vector<char> zeros(kPage, 0);
  int map = in_file && mapping.file < 0 ? -1 : ::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  std::vector<uint64_t> entries(kChunkPages);
  bool good = true;
  for (size_t done = 0; good && done < size;) {
    const char* at = bytes + done;
    const uintptr_t page = reinterpret_cast<uintptr_t>(at) / kPage;
    size_t span = std::min(size - done, kChunkPages * kPage - reinterpret_cast<uintptr_t>(at) % kPage);
    const size_t pages = (reinterpret_cast<uintptr_t>(at) + span - 1) / kPage - page + 1;
    const bool known = map >= 0 && ::pread(map, entries.data(), pages * 8, page * 8) == static_cast<ssize_t>(pages * 8);
    auto is_hole = [&](size_t p) {
      if (!known) return false;
      const bool own = (entries[p] & kTouched) && !(entries[p] & kOfFile);  // not the file's
      if (mapping.file >= 0 && !own) return holes.covers(static_cast<off_t>((page + p) * kPage - mapping.start), kPage);
      if (!own) return true;
      const char* start = reinterpret_cast<const char*>((page + p) * kPage);  // read, not written: the kernel's zero page
      return start >= bytes && start + kPage <= bytes + size && std::memcmp(start, zeros.data(), kPage) == 0;
    };
    for (size_t p = 0; good && p < pages;) {
      const bool hole = is_hole(p);
      size_t to = p + 1;
      while (to < pages && is_hole(to) == hole) to++;
      const char* start = std::max(at, reinterpret_cast<const char*>((page + p) * kPage));
      const char* end = std::min(at + span, reinterpret_cast<const char*>((page + to) * kPage));
      if (hole) {
        good = ::lseek(file, end - start, SEEK_CUR) >= 0;
      } else {
        while (good && start < end) {
          const ssize_t n = ::write(file, start, end - start);
          if (n > 0) start += n;
          else good = n < 0 && errno == EINTR;
        }
      }
      p = to;
    }
    done += span;
  }
  if (map >= 0) ::close(map);
  // A hole at the end makes no file longer.
  const off_t position = good ? ::lseek(file, 0, SEEK_CUR) : -1;
  if (position >= 0 && ::lseek(file, 0, SEEK_END) < position) good = ::ftruncate(file, position) == 0;
  if (position >= 0) ::lseek(file, position, SEEK_SET);
  return good;
}

namespace {
bool maps_file(const void* address) {
  FILE* maps = std::fopen("/proc/self/maps", "re");
  if (!maps) return false;
  unsigned long start = 0, end = 0, inode = 0;
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  char flags[8], line[4096 + 128];
  bool found = false;
  while (std::fgets(line, sizeof line, maps)) {
    if (std::sscanf(line, "%lx-%lx %7s %*x %*s %lu", &start, &end, flags, &inode) != 4 || wanted >= end) continue;
    found = wanted >= start && inode != 0 && flags[3] == 'p';
    break;
  }
  std::fclose(maps);
  return found;
}
}  // namespace

bool reads_as_zero(const at::Tensor& t) {
  constexpr size_t kSamples = 64;
  const char* begin = bytes_of(t) + t.storage_offset() * t.itemsize();
  const size_t step = t.nbytes() / kSamples;
  for (size_t s = 0; s < kSamples; s++) {
    uint64_t words[8];
    std::memcpy(words, begin + s * step, sizeof words);
    for (uint64_t word : words)
      if (word) return false;
  }
  return true;
}

}  // namespace gpumem::tracer
