// SPDX-License-Identifier: Apache-2.0
// Texture and surface objects. See textures.h.

#include "estimator/virtual_gpu/device/textures.h"

#include <string.h>

#include "estimator/virtual_gpu/device/arrays.h"
#include "estimator/virtual_gpu/device/objects.h"

namespace gpumem::virtual_gpu {
namespace {

struct Description {
  uint32_t how_bytes, has_view;
  char how[kDriverTextureBytes];
  char view[kViewBytes];
};
struct Texture {
  uint32_t kind, surface;
  char resource[kResourceBytes];
  Description *description;  // of a texture
};

Texture *find_texture(unsigned long long handle, bool surface) {
  Texture *texture = find<Texture>(reinterpret_cast<void *>(handle), kTextureObject);
  return texture != nullptr && texture->surface == surface ? texture : nullptr;
}

void give(void *to, size_t bytes, const void *from, size_t known_bytes) {
  memset(to, 0, bytes);
  memcpy(to, from, bytes < known_bytes ? bytes : known_bytes);
}

Error check_resource(const void *resource, bool surface) {
  int type;
  void *array;
  memcpy(&type, resource, sizeof(type));
  memcpy(&array, static_cast<const char *>(resource) + 8, sizeof(array));
  constexpr int kOfArray = 0, kOfMipmapped = 1, kLastType = 3;  // cudaResourceType
  if (type < 0 || type > kLastType || (surface && type != kOfArray)) return cuda::kInvalidValue;
  if (type == kOfArray && find_array(array) == nullptr) return cuda::kInvalidHandle;
  if (type == kOfMipmapped && find_object(array, kMipmappedObject) == nullptr) return cuda::kInvalidHandle;
  return cuda::kSuccess;
}

Error make_object(unsigned long long *handle, const void *resource, bool surface, Texture **made) {
  Error error = check_current();
  if (error != cuda::kSuccess) return error;
  if (handle == nullptr || resource == nullptr) return cuda::kInvalidValue;
  error = check_resource(resource, surface);
  if (error != cuda::kSuccess) return error;
  *made = make<Texture>(kTextureObject);
  if (*made == nullptr) return cuda::kOperatingSystem;
  (*made)->surface = surface;
  memcpy((*made)->resource, resource, kResourceBytes);
  *handle = reinterpret_cast<unsigned long long>(*made);
  return cuda::kSuccess;
}

Error give_resource(void *resource, size_t bytes, const Texture *of) {
  if (of == nullptr || resource == nullptr) return cuda::kInvalidValue;
  give(resource, bytes, of->resource, kResourceBytes);
  return cuda::kSuccess;
}

Error delete_object_of(unsigned long long handle, bool surface) {
  if (handle == 0) return cuda::kSuccess;
  Texture *texture = find_texture(handle, surface);
  if (texture == nullptr) return cuda::kInvalidValue;
  release_zeroed(texture->description);
  delete_object(texture);
  return cuda::kSuccess;
}

}  // namespace

Error make_texture(unsigned long long *texture, const void *resource, const void *how, size_t how_bytes, const void *view) {
  if (how == nullptr) return cuda::kInvalidValue;
  Texture *made = nullptr;
  const Error error = make_object(texture, resource, false, &made);
  if (error != cuda::kSuccess) return error;
  made->description = static_cast<Description *>(allocate_zeroed(sizeof(Description)));
  if (made->description == nullptr) {
    delete_object(made);
    return cuda::kOperatingSystem;
  }
  made->description->how_bytes = static_cast<uint32_t>(how_bytes);
  memcpy(made->description->how, how, how_bytes);
  if (view == nullptr) return cuda::kSuccess;
  made->description->has_view = 1;
  memcpy(made->description->view, view, kViewBytes);
  return cuda::kSuccess;
}

Error make_surface(unsigned long long *surface, const void *resource) {
  Texture *made = nullptr;
  return make_object(surface, resource, true, &made);
}

Error texture_resource(void *resource, size_t bytes, unsigned long long texture) { return give_resource(resource, bytes, find_texture(texture, false)); }
Error surface_resource(void *resource, size_t bytes, unsigned long long surface) { return give_resource(resource, bytes, find_texture(surface, true)); }

Error texture_how(void *how, size_t bytes, unsigned long long handle) {
  const Texture *texture = find_texture(handle, false);
  if (texture == nullptr || how == nullptr) return cuda::kInvalidValue;
  const Description &known = *texture->description;
  if ((bytes == kDriverTextureBytes) != (known.how_bytes == kDriverTextureBytes)) {
    report_missing("cuTexObjectGetTextureDesc (of a texture of the runtime's, or the reverse)");
    return cuda::kNotSupported;
  }
  give(how, bytes, known.how, known.how_bytes);
  return cuda::kSuccess;
}

// CUDA has an error for a texture that was made without one.
Error texture_view(void *view, size_t bytes, unsigned long long handle) {
  const Texture *texture = find_texture(handle, false);
  if (texture == nullptr || view == nullptr || !texture->description->has_view) return cuda::kInvalidValue;
  give(view, bytes, texture->description->view, kViewBytes);
  return cuda::kSuccess;
}

Error delete_texture(unsigned long long texture) { return delete_object_of(texture, false); }
Error delete_surface(unsigned long long surface) { return delete_object_of(surface, true); }

}  // namespace gpumem::virtual_gpu
