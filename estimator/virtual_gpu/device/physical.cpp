// SPDX-License-Identifier: Apache-2.0
// Virtual memory management. Part of libgpumem_vgpu.so, preloaded into jobs.

#include "estimator/virtual_gpu/device/physical.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "estimator/virtual_gpu/device/contents.h"
#include "estimator/virtual_gpu/device/multicast.h"
#include "estimator/virtual_gpu/device/objects.h"
#include "estimator/virtual_gpu/device/record_lines.h"
#include "estimator/virtual_gpu/device/shared.h"

namespace gpumem::virtual_gpu {
namespace {

constinit Lock physical_lock;

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
  physical->descriptor = -1;
  physical->properties = properties;
  if (device >= 0) record_taken(device, bytes, reinterpret_cast<uintptr_t>(physical));
  *handle = physical;
  return cuda::kSuccess;
}

Physical *find_physical(uint64_t handle) { return find<Physical>(reinterpret_cast<const void *>(handle), kPhysicalObject); }

void release_physical(Physical *physical) {
  if (__atomic_sub_fetch(&physical->references, 1, __ATOMIC_ACQ_REL) != 0) return;
  if (physical->device >= 0 && !physical->imported) {
    record_returned(physical->device, physical->size, reinterpret_cast<uintptr_t>(physical));
    discharge(physical->device, physical->size);
  }
  if (physical->multicast_devices != 0) unbind_all(physical);
  SharedLabel label;
  if (physical->descriptor >= 0 && read_label(physical->descriptor, &label)) close(physical->descriptor);
  delete_object(physical);
}

// From now on the memory is a file, mapped wherever it was mapped before: see Note [Shared contents].
static Error share_locked(Physical *physical) {
  if (physical->descriptor >= 0) return cuda::kSuccess;
  const int descriptor = make_shared_file(physical->size, physical->device, static_cast<int>(physical->multicast_devices));
  if (descriptor < 0) return cuda::kOperatingSystem;
  if (physical->mapped_at != 0) {
    const Range range = find_range(reinterpret_cast<void *>(physical->mapped_at));
    if (range.kind == RangeKind::mapped && range.owner == physical &&
        (!write_touched(descriptor, range.start, range.size) || !map_shared(descriptor, 0, range.start, range.size))) {
      close(descriptor);
      return host_failure("shared memory (write)", physical->size);
    }
  }
  physical->descriptor = descriptor;
  return cuda::kSuccess;
}

Error export_physical(Physical *physical, int *descriptor) {
  Locked locked(physical_lock);
  const Error error = share_locked(physical);
  if (error != cuda::kSuccess) return error;
  *descriptor = fcntl(physical->descriptor, F_DUPFD_CLOEXEC, 0);
  return *descriptor >= 0 ? cuda::kSuccess : host_failure("shared handle (fcntl)", physical->size);
}

Error import_physical(int descriptor, Physical **handle) {
  SharedLabel label;
  if (!read_label(descriptor, &label)) return cuda::kInvalidValue;
  const int device = visible_device(label.device);
  if (label.device >= 0 && device < 0) return cuda::kInvalidDevice;
  Physical *physical = make<Physical>(kPhysicalObject);
  const int own = physical == nullptr ? -1 : fcntl(descriptor, F_DUPFD_CLOEXEC, 800);
  if (own < 0) {
    delete_object(physical);
    return host_failure("shared handle (fcntl)", label.size);
  }
  physical->device = device;
  physical->size = label.size;
  physical->references = 1;
  physical->imported = 1;
  physical->multicast_devices = static_cast<uint32_t>(label.multicast_devices);
  physical->descriptor = own;
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
  if (physical->mapped_at != 0) {  // a second place for the same memory
    const Error error = share_locked(physical);
    if (error != cuda::kSuccess) return error;
  }
  if (!insert_range(Range{address, bytes, 0, 0, physical, 0, static_cast<int16_t>(physical->device), RangeKind::mapped, 0}))
    return host_failure("small host memory", bytes);
  __atomic_add_fetch(&physical->references, 1, __ATOMIC_RELAXED);
  if (physical->mapped_at == 0) {
    physical->mapped_at = address;
    if (physical->device >= 0 && !physical->imported) record_mapped(reinterpret_cast<uintptr_t>(physical), address);
  }
  if (physical->descriptor >= 0) return map_shared(physical->descriptor, 0, address, bytes) ? cuda::kSuccess : cuda::kOperatingSystem;
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
    Physical *physical = static_cast<Physical *>(range.owner);
    if (physical->mapped_at == at) physical->mapped_at = 0;
    forget_shared(at);
    mmap(reinterpret_cast<void *>(at), range.size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    release_physical(physical);
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
