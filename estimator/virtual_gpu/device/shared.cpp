// SPDX-License-Identifier: Apache-2.0
// Memory files behind shared device memory. Part of libgpumem_vgpu.so, preloaded into jobs. See Note [Shared contents] in shared.h.

#include "estimator/virtual_gpu/device/shared.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "estimator/virtual_gpu/device/memory.h"

namespace gpumem::virtual_gpu {
namespace {

constexpr uint64_t kMagic = 0x3144455241485347;  // "GSHARED1"
constexpr size_t kPage = 4096;

struct Mapping {
  Mapping *next;
  uintptr_t start;
  size_t size;
  int descriptor;  // -1: mapped from somebody else's
};

struct Mappings {
  Lock lock;
  Mapping *first;
};
constinit Mappings mappings = {};
uint64_t last_serial;

bool write_all(int descriptor, const void *from, size_t bytes, size_t offset) {
  return pwrite(descriptor, from, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
}

bool add(uintptr_t start, size_t size, int descriptor) {
  Mapping *mapping = static_cast<Mapping *>(allocate_zeroed(sizeof(Mapping)));
  if (mapping == nullptr) return false;
  *mapping = {nullptr, start, size, descriptor};
  Locked locked(mappings.lock);
  mapping->next = mappings.first;
  __atomic_store_n(&mappings.first, mapping, __ATOMIC_RELEASE);
  return true;
}

bool map_over(int descriptor, size_t offset, uintptr_t start, size_t size) {
  void *address = reinterpret_cast<void *>(start);
  if (mmap(address, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, descriptor, static_cast<off_t>(offset)) != address)
    return false;
  madvise(address, size, MADV_DONTDUMP);
  return true;
}

}  // namespace

int make_shared_file(size_t size, int device, int multicast_devices) {
  int descriptor = static_cast<int>(syscall(SYS_memfd_create, "gpumem-shared", 1u /* MFD_CLOEXEC */));
  if (descriptor < 0) return host_failure("shared memory (memfd_create)", size), -1;
  // Out of the way of programs that count on low numbers or close them all.
  const int high = fcntl(descriptor, F_DUPFD_CLOEXEC, 800);
  if (high >= 0) {
    close(descriptor);
    descriptor = high;
  }
  const SharedLabel label{kMagic, size, state.book.file_device, state.book.file_inode, device < 0 ? -1 : book_device(device), multicast_devices,
                          __atomic_add_fetch(&last_serial, 1, __ATOMIC_RELAXED)};
  const size_t end = (size + kPage - 1) / kPage * kPage;
  if (ftruncate(descriptor, static_cast<off_t>(end + kPage)) == 0 && write_all(descriptor, &label, sizeof(label), end)) return descriptor;
  host_failure("shared memory (ftruncate)", size);
  close(descriptor);
  return -1;
}

bool read_label(int descriptor, SharedLabel *label) {
  const off_t end = lseek(descriptor, 0, SEEK_END);
  return end > static_cast<off_t>(kPage) &&
         pread(descriptor, label, sizeof(*label), end - static_cast<off_t>(kPage)) == static_cast<ssize_t>(sizeof(*label)) &&
         label->magic == kMagic && label->book_device == state.book.file_device && label->book_inode == state.book.file_inode &&
         label->size <= static_cast<uint64_t>(end) - kPage;
}

bool write_touched(int descriptor, uintptr_t start, size_t size) {
  constexpr size_t kChunkPages = 512;
  unsigned char resident[kChunkPages];
  for (size_t at = 0; at < size; at += kChunkPages * kPage) {
    const size_t bytes = size - at < kChunkPages * kPage ? size - at : kChunkPages * kPage;
    if (syscall(SYS_mincore, start + at, bytes, resident) != 0) return false;
    for (size_t page = 0; page * kPage < bytes; ++page) {
      if ((resident[page] & 1) == 0) continue;
      const size_t offset = at + page * kPage;
      const size_t left = size - offset;
      if (!write_all(descriptor, reinterpret_cast<void *>(start + offset), left < kPage ? left : kPage, offset)) return false;
    }
  }
  return true;
}

int share_memory(uintptr_t start, size_t size, int device) {
  {
    Locked locked(mappings.lock);
    for (const Mapping *mapping = mappings.first; mapping != nullptr; mapping = mapping->next)
      if (mapping->start == start) return mapping->descriptor;
  }
  const int descriptor = make_shared_file(size, device);
  if (descriptor < 0) return -1;
  if (write_touched(descriptor, start, size) && add(start, size, descriptor)) {
    if (map_over(descriptor, 0, start, size)) return descriptor;
    forget_shared(start);  // closes it
    host_failure("shared memory (mmap)", size);
    return -1;
  }
  host_failure("shared memory (write)", size);
  close(descriptor);
  return -1;
}

bool map_shared(int descriptor, size_t offset, uintptr_t start, size_t size) {
  if (!add(start, size, -1)) return false;
  if (map_over(descriptor, offset, start, size)) return true;
  forget_shared(start);
  host_failure("shared memory (mmap)", size);
  return false;
}

void forget_shared(uintptr_t start) {
  if (__atomic_load_n(&mappings.first, __ATOMIC_ACQUIRE) == nullptr) return;
  Locked locked(mappings.lock);
  for (Mapping **link = &mappings.first; *link != nullptr; link = &(*link)->next) {
    Mapping *mapping = *link;
    if (mapping->start != start) continue;
    *link = mapping->next;
    SharedLabel label;
    if (mapping->descriptor >= 0 && read_label(mapping->descriptor, &label)) close(mapping->descriptor);
    release_zeroed(mapping);
    return;
  }
}

bool is_shared(const void *address) {
  if (__atomic_load_n(&mappings.first, __ATOMIC_ACQUIRE) == nullptr) return false;
  const uintptr_t at = reinterpret_cast<uintptr_t>(address);
  Locked locked(mappings.lock);
  for (const Mapping *mapping = mappings.first; mapping != nullptr; mapping = mapping->next)
    if (mapping->start <= at && at < mapping->start + mapping->size) return true;
  return false;
}

}  // namespace gpumem::virtual_gpu
