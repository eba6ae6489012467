// SPDX-License-Identifier: Apache-2.0
// Multicast objects. Part of libgpumem_vgpu.so, preloaded into jobs. See multicast.h.

#include "estimator/virtual_gpu/device/multicast.h"

#include "estimator/virtual_gpu/device/facts.h"
#include "estimator/virtual_gpu/device/objects.h"

namespace gpumem::virtual_gpu {

struct Binding {
  Binding *next;
  Physical *memory;
  int device;
  size_t offset, size;
};

namespace {

constinit Lock multicast_lock;

bool whole(size_t bytes) { return bytes % kGranularity == 0; }

int count_devices(uint32_t set) { return __builtin_popcount(set); }

}  // namespace

bool has_multicast(int device) {
  const book::DeviceDescription *facts = device_description(device);
  return facts != nullptr && facts->compute_major >= 9 && has_nvlink(facts->name);
}

Error create_multicast(const MulticastProperties &properties, Physical **object) {
  bool supported = false;
  for (int d = 0; d < state.visible_count; ++d) supported |= has_multicast(d);
  if (!supported) return cuda::kNotSupported;
  constexpr unsigned long long kFileDescriptor = 1;  // fabric handles need a fabric
  if (properties.device_count == 0 || properties.size == 0 || !whole(properties.size) || properties.flags != 0) return cuda::kInvalidValue;
  if ((properties.handle_types & ~kFileDescriptor) != 0) return cuda::kNotPermitted;
  cuda::PhysicalProperties none = {};
  none.requestedHandleTypes = static_cast<int>(properties.handle_types);
  const Error error = create_physical(object, properties.size, none);
  if (error == cuda::kSuccess) (*object)->multicast_devices = properties.device_count;
  return error;
}

Error add_multicast_device(Physical *object, int device) {
  if (object == nullptr || object->multicast_devices == 0) return cuda::kInvalidValue;
  if (device < 0 || device >= state.visible_count) return cuda::kInvalidDevice;
  if (!has_multicast(device)) return cuda::kNotSupported;
  Locked locked(multicast_lock);
  const uint32_t bit = uint32_t{1} << device;
  if ((object->added_devices & bit) != 0 || static_cast<unsigned>(count_devices(object->added_devices)) == object->multicast_devices)
    return cuda::kInvalidValue;
  object->added_devices |= bit;
  return cuda::kSuccess;
}

Error bind_multicast(Physical *object, int device, size_t offset, Physical *memory, size_t memory_offset, size_t size) {
  if (object == nullptr || object->multicast_devices == 0 || memory == nullptr || memory->multicast_devices != 0) return cuda::kInvalidValue;
  if (size == 0 || !whole(size) || !whole(offset) || !whole(memory_offset)) return cuda::kInvalidValue;
  if (size > object->size || offset > object->size - size || size > memory->size || memory_offset > memory->size - size) return cuda::kInvalidValue;
  if (memory->device < 0 || (device >= 0 && device != memory->device)) return cuda::kInvalidValue;
  device = memory->device;
  Binding *binding = static_cast<Binding *>(allocate_zeroed(sizeof(Binding)));
  if (binding == nullptr) return host_failure("small host memory", sizeof(Binding));
  *binding = {nullptr, memory, device, offset, size};
  Locked locked(multicast_lock);
  // Of an imported object the other devices were added elsewhere.
  bool good = (object->added_devices >> device & 1) != 0 &&
              (object->imported || static_cast<unsigned>(count_devices(object->added_devices)) == object->multicast_devices);
  for (const Binding *other = object->bindings; other != nullptr && good; other = other->next)
    good = other->device != device || other->offset + other->size <= offset || offset + size <= other->offset;
  if (!good) {
    release_zeroed(binding);
    return cuda::kInvalidValue;
  }
  __atomic_add_fetch(&memory->references, 1, __ATOMIC_RELAXED);
  binding->next = object->bindings;
  object->bindings = binding;
  return cuda::kSuccess;
}

Error unbind_multicast(Physical *object, int device, size_t offset, size_t size) {
  if (object == nullptr || object->multicast_devices == 0) return cuda::kInvalidValue;
  Physical *memory = nullptr;
  {
    Locked locked(multicast_lock);
    for (Binding **link = &object->bindings; *link != nullptr; link = &(*link)->next) {
      Binding *binding = *link;
      if (binding->device != device || binding->offset != offset || binding->size != size) continue;
      memory = binding->memory;
      *link = binding->next;
      release_zeroed(binding);
      break;
    }
  }
  if (memory == nullptr) return cuda::kInvalidValue;
  release_physical(memory);
  return cuda::kSuccess;
}

void unbind_all(Physical *object) {
  while (object->bindings != nullptr) {
    Binding *binding = object->bindings;
    object->bindings = binding->next;
    release_physical(binding->memory);
    release_zeroed(binding);
  }
}

}  // namespace gpumem::virtual_gpu
