// SPDX-License-Identifier: Apache-2.0
// Virtual memory management. Part of libgpumem_vgpu.so, preloaded into jobs.

#include "estimator/virtual_gpu/device/physical.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "estimator/virtual_gpu/device/contents.h"
#include "estimator/virtual_gpu/device/objects.h"

namespace gpumem::virtual_gpu {
namespace {

constinit Lock physical_lock;

struct Exported {
  uint64_t magic, size;
  int32_t device, reserved;  // the book's device
};
constexpr uint64_t kExportedMagic = 0x3153594850474d47;

bool whole(size_t bytes) { return bytes != 0 && bytes % kGranularity == 0; }

}  // namespace

Error reserve_addresses(uintptr_t *address, size_t bytes, size_t alignment, uintptr_t) {
  if (address == nullptr || !whole(bytes) || (alignment & (alignment - 1)) != 0) return cuda::kInvalidValue;
  void *reserved = map_address_space(bytes);  // aligned to 2 MiB; larger alignments are a wish that CUDA may refuse
  if (reserved == nullptr) return cuda::kOperatingSystem;
  const uintptr_t start = reinterpret_cast<uintptr_t>(reserved);
  if (alignment > kGranularity && start % alignment != 0) {
    unmap_address_space(reserved, bytes);
    return cuda::kNotSupported;
  }
  mprotect(reserved, bytes, PROT_NONE);
  if (!insert_range(Range{start, bytes, bytes, 0, nullptr, 0, -1, RangeKind::reservation, 0})) {
    unmap_address_space(reserved, bytes);
    return host_failure("small host memory", bytes);
  }
  *address = start;
  return cuda::kSuccess;
}

Error free_addresses(uintptr_t address, size_t bytes) {
  if (is_mapped(address, bytes)) return cuda::kInvalidValue;
  const Range range = remove_range(address, RangeKind::reservation);
  if (range.kind == RangeKind::none) return cuda::kInvalidValue;
  if (range.size != bytes) {
    insert_range(range);
    return cuda::kInvalidValue;
  }
  unmap_address_space(reinterpret_cast<void *>(address), bytes);
  return cuda::kSuccess;
}

Error create_physical(Physical **handle, size_t bytes, const cuda::PhysicalProperties &properties) {
  if (handle == nullptr || !whole(bytes)) return cuda::kInvalidValue;
  int device = -1;
  if (properties.location.type == cuda::kLocationDevice) {
    device = properties.location.id;
    if (device < 0 || device >= state.visible_count) return cuda::kInvalidDevice;
    constexpr int kFileDescriptor = 1;  // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR; programs ask for fabric handles on trial
    if ((properties.requestedHandleTypes & ~kFileDescriptor) != 0) return cuda::kNotPermitted;
    Error error = check_device(device);
    if (error != cuda::kSuccess) return error;
    switch (book::charge(&state.book, book_device(device), bytes, book::Charge::allocation)) {
      case book::Status::ok: break;
      case book::Status::out_of_memory: return cuda::kOutOfMemory;
      default: return host_failure("lock of the book", bytes);
    }
  }
  Physical *physical = make<Physical>(kPhysicalObject);
  if (physical == nullptr) {
    if (device >= 0) discharge(device, bytes);
    return cuda::kOperatingSystem;
  }
  physical->device = device;
  physical->size = bytes;
  physical->references = 1;
  physical->properties = properties;
  *handle = physical;
  return cuda::kSuccess;
}

Physical *find_physical(uint64_t handle) { return find<Physical>(reinterpret_cast<const void *>(handle), kPhysicalObject); }

void release_physical(Physical *physical) {
  if (__atomic_sub_fetch(&physical->references, 1, __ATOMIC_ACQ_REL) != 0) return;
  if (physical->device >= 0 && !physical->imported) discharge(physical->device, physical->size);
  delete_object(physical);
}

// The descriptor is a sealed-off memory file that only names the size and the device.
Error export_physical(const Physical *physical, int *descriptor) {
  const int fd = static_cast<int>(syscall(SYS_memfd_create, "gpumem-physical", 1u /* MFD_CLOEXEC */));
  if (fd < 0) return host_failure("shared handle (memfd_create)", physical->size);
  const Exported exported{kExportedMagic, physical->size, physical->device < 0 ? -1 : book_device(physical->device), 0};
  if (write(fd, &exported, sizeof(exported)) != static_cast<ssize_t>(sizeof(exported))) {
    close(fd);
    return host_failure("shared handle (write)", physical->size);
  }
  *descriptor = fd;
  return cuda::kSuccess;
}

Error import_physical(int descriptor, Physical **handle) {
  Exported exported;
  if (pread(descriptor, &exported, sizeof(exported), 0) != static_cast<ssize_t>(sizeof(exported)) || exported.magic != kExportedMagic)
    return cuda::kInvalidValue;
  int device = -1;
  for (int d = 0; d < state.visible_count; ++d)
    if (book_device(d) == exported.device) device = d;
  if (exported.device >= 0 && device < 0) return cuda::kInvalidDevice;
  Physical *physical = make<Physical>(kPhysicalObject);
  if (physical == nullptr) return cuda::kOperatingSystem;
  physical->device = device;
  physical->size = exported.size;
  physical->references = 1;
  physical->imported = 1;
  physical->properties.type = 1;  // pinned, the only kind
  physical->properties.location = {cuda::kLocationDevice, device};
  *handle = physical;
  return cuda::kSuccess;
}

Error map_physical(uintptr_t address, size_t bytes, size_t offset, Physical *physical) {
  if (physical == nullptr || !whole(bytes) || offset != 0 || bytes > physical->size) return cuda::kInvalidValue;
  Locked locked(physical_lock);
  const Range first = find_range(reinterpret_cast<void *>(address));
  const Range last = find_range(reinterpret_cast<void *>(address + bytes - 1));
  if (first.kind != RangeKind::reservation || last.kind != RangeKind::reservation) return cuda::kInvalidValue;
  if (!insert_range(Range{address, bytes, 0, 0, physical, 0, static_cast<int16_t>(physical->device), RangeKind::mapped, 0}))
    return host_failure("small host memory", bytes);
  __atomic_add_fetch(&physical->references, 1, __ATOMIC_RELAXED);
  if (mprotect(reinterpret_cast<void *>(address), bytes, PROT_READ | PROT_WRITE) != 0) return host_failure("mapping (mprotect)", bytes);
  return cuda::kSuccess;
}

// One call may cover several mappings, each of them whole.
Error unmap_physical(uintptr_t address, size_t bytes) {
  if (!whole(bytes)) return cuda::kInvalidValue;
  Locked locked(physical_lock);
  for (uintptr_t at = address; at < address + bytes;) {
    const Range range = find_range(reinterpret_cast<void *>(at));
    if (range.kind != RangeKind::mapped || range.start != at || range.end() > address + bytes) return cuda::kInvalidValue;
    at = range.end();
  }
  for (uintptr_t at = address; at < address + bytes;) {
    const Range range = remove_range(at, RangeKind::mapped);
    drop_contents(reinterpret_cast<void *>(at), range.size);
    madvise(reinterpret_cast<void *>(at), range.size, MADV_DONTNEED);
    mprotect(reinterpret_cast<void *>(at), range.size, PROT_NONE);
    release_physical(static_cast<Physical *>(range.owner));
    at = range.end();
  }
  return cuda::kSuccess;
}

bool is_mapped(uintptr_t address, size_t bytes) {
  for (uintptr_t at = address; at < address + bytes; at += kGranularity)
    if (find_range(reinterpret_cast<void *>(at)).kind == RangeKind::mapped) return true;
  return false;
}

}  // namespace gpumem::virtual_gpu
