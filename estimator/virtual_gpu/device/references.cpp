// SPDX-License-Identifier: Apache-2.0
// Texture and surface references. Part of libgpumem_vgpu.so, preloaded into jobs. See references.h.

#include "estimator/virtual_gpu/device/references.h"

#include <string.h>

#include "estimator/virtual_gpu/device/objects.h"

namespace gpumem::virtual_gpu {
namespace {

constexpr size_t kAlignment = 512;  // cudaDeviceProp::textureAlignment

struct References {
  Lock lock;
  Reference *first;
};
constinit References references = {};

Reference *find_locked(const void *owner, const char *name, unsigned surface) {
  for (Reference *r = references.first; r != nullptr; r = r->next) {
    if (r->owner != owner || r->surface != surface || (r->name == nullptr) != (name == nullptr)) continue;
    if (name == nullptr || strcmp(r->name, name) == 0) return r;
  }
  return nullptr;
}

Reference *make_locked(const void *owner, const char *name, unsigned surface) {
  Reference *made = make<Reference>(kReferenceObject);
  if (made == nullptr) return nullptr;
  if (name != nullptr) {
    made->name = static_cast<char *>(allocate_zeroed(strlen(name) + 1));
    if (made->name == nullptr) return delete_object(made), nullptr;
    strcpy(made->name, name);
  }
  made->surface = surface;
  made->owner = owner;
  made->format = 0x20;  // one float
  made->channels = 1;
  made->next = references.first;
  references.first = made;
  return made;
}

}  // namespace

void register_reference(const void *variable, unsigned surface) {
  Locked locked(references.lock);
  if (variable != nullptr && find_locked(variable, nullptr, surface) == nullptr) make_locked(variable, nullptr, surface);
}

Reference *registered_reference(const void *variable, unsigned surface) {
  Locked locked(references.lock);
  return variable != nullptr ? find_locked(variable, nullptr, surface) : nullptr;
}

Reference *module_reference(const void *module, const char *name, unsigned surface) {
  Locked locked(references.lock);
  Reference *known = find_locked(module, name, surface);
  return known != nullptr ? known : make_locked(module, name, surface);
}

Reference *new_reference() {
  Locked locked(references.lock);
  return make_locked(nullptr, nullptr, 0);
}

Reference *find_reference(const void *handle, unsigned surface) {
  Reference *reference = find<Reference>(handle, kReferenceObject);
  return reference != nullptr && reference->surface == surface ? reference : nullptr;
}

Error delete_reference(void *handle) {
  Reference *reference = find_reference(handle, 0);
  if (reference == nullptr || reference->owner != nullptr) return cuda::kInvalidValue;
  Locked locked(references.lock);
  for (Reference **link = &references.first; *link != nullptr; link = &(*link)->next) {
    if (*link != reference) continue;
    *link = reference->next;
    break;
  }
  delete_object(reference);
  return cuda::kSuccess;
}

void bind_nothing(Reference *reference) {
  reference->address = 0;
  reference->array = reference->mipmapped = nullptr;
}

Error bind_address(Reference *reference, uint64_t address, size_t bytes, size_t *offset) {
  const Error error = check_current();
  if (error != cuda::kSuccess) return error;
  const size_t before = address % kAlignment;
  if (before != 0 && offset == nullptr) return cuda::kInvalidValue;
  // The default size is all that there is.
  const Error access = check_access(reinterpret_cast<void *>(address), bytes > UINT32_MAX - 1 ? 1 : bytes, true);
  if (access != cuda::kSuccess) return access;
  bind_nothing(reference);
  reference->address = address;
  if (offset != nullptr) *offset = before;
  return cuda::kSuccess;
}

Error bind_array(Reference *reference, const void *array) {
  if (find_array(array) == nullptr) return cuda::kInvalidHandle;
  bind_nothing(reference);
  reference->array = const_cast<void *>(array);
  return cuda::kSuccess;
}

Error bind_mipmapped(Reference *reference, const void *mipmapped) {
  if (find_object(mipmapped, kMipmappedObject) == nullptr) return cuda::kInvalidHandle;
  bind_nothing(reference);
  reference->mipmapped = const_cast<void *>(mipmapped);
  return cuda::kSuccess;
}

}  // namespace gpumem::virtual_gpu
