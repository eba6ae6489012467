// SPDX-License-Identifier: Apache-2.0
// Shared memory pools. Part of libgpumem_vgpu.so, preloaded into jobs. See pool_sharing.h.

#include "estimator/virtual_gpu/device/pool_sharing.h"

#include <string.h>
#include <unistd.h>

#include "estimator/virtual_gpu/device/external.h"
#include "estimator/virtual_gpu/device/ipc.h"
#include "estimator/virtual_gpu/device/shared.h"

namespace gpumem::virtual_gpu {

// A pool's file holds nothing: its label says which device it is of.
Error export_pool(const Pool *pool, int type, int *descriptor) {
  if (pool == nullptr || descriptor == nullptr || type == 0) return cuda::kInvalidValue;
  if ((pool->handle_types & type) == 0 || pool->imported) return type == kFileDescriptorHandle ? cuda::kInvalidValue : cuda::kNotSupported;
  *descriptor = make_shared_file(kGranularity, pool->device);
  return *descriptor >= 0 ? cuda::kSuccess : cuda::kOperatingSystem;
}

Error import_pool(int type, int descriptor, void **pool) {
  if (pool == nullptr) return cuda::kInvalidValue;
  if (type != kFileDescriptorHandle) return type == 0 ? cuda::kInvalidValue : cuda::kNotSupported;
  SharedLabel label;
  if (!read_label(descriptor, &label)) return cuda::kInvalidValue;
  const int device = visible_device(label.device);
  if (label.device >= 0 && device < 0) return cuda::kInvalidDevice;
  Pool *made = create_pool(device);
  if (made == nullptr) return cuda::kOperatingSystem;
  made->imported = 1;
  *pool = made;
  return cuda::kSuccess;
}

Error export_pool_pointer(PoolPointer *shared, void *pointer) {
  if (shared == nullptr) return cuda::kInvalidValue;
  const Range range = find_range(pointer);
  Pool *pool = pool_of(range);
  const size_t size = block_size(range, pointer);
  if (pool == nullptr || size == 0 || (pool->handle_types & kFileDescriptorHandle) == 0) return cuda::kInvalidValue;
  SharedPlace place;
  const Error error = describe_shared(kPoolPlace, range, pointer, size, &place);
  static_assert(sizeof(place) <= sizeof(*shared));
  memset(shared, 0, sizeof(*shared));
  memcpy(shared, &place, sizeof(place));
  return error;
}

Error import_pool_pointer(const Pool *pool, const PoolPointer &shared, void **pointer) {
  if (pool == nullptr || pointer == nullptr || !pool->imported) return cuda::kInvalidValue;
  SharedPlace place;
  memcpy(&place, &shared, sizeof(place));
  SharedLabel label;
  const int descriptor = open_shared(kPoolPlace, place, &label);
  if (descriptor < 0) return cuda::kInvalidValue;
  const bool same_device = label.device == (pool->device < 0 ? -1 : book_device(pool->device));
  const Error error = same_device ? map_external(descriptor, place.offset, place.size, pool->device, pointer) : cuda::kInvalidValue;
  close(descriptor);
  return error;
}

}  // namespace gpumem::virtual_gpu
