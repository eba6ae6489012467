// SPDX-License-Identifier: Apache-2.0
// See cudnn_learned.h. Runs in the job's processes.
#include "estimator/virtual_gpu/libraries/cudnn_learned.h"

#include <stdlib.h>

#include "estimator/virtual_gpu/libraries/cudnn_real.h"
#include "estimator/virtual_gpu/libraries/library.h"
#include "estimator/workspaces/plans.h"
#include "estimator/workspaces/table.h"

namespace gpumem::virtual_gpu::libraries {

namespace {

// Mapped at the first use and kept; nullptr: there is none.
const workspaces::Table *table() {
  static Lock lock;
  static bool tried;
  static workspaces::Table mapped;
  if (!__atomic_load_n(&tried, __ATOMIC_ACQUIRE)) {
    Locked locked(lock);
    const char *path = getenv("GPUMEM_WORKSPACES");
    if (!tried && path != nullptr && path[0] == '/') workspaces::map(path, &mapped);
    __atomic_store_n(&tried, true, __ATOMIC_RELEASE);
  }
  return mapped.text != nullptr ? &mapped : nullptr;
}

}  // namespace

void descriptor_created(const void *descriptor, int type) {
  if (table() != nullptr) workspaces::created(descriptor, type);
}
void descriptor_destroyed(const void *descriptor) {
  if (table() != nullptr) workspaces::destroyed(descriptor);
}
void attribute_set(const void *descriptor, int name, int type, int64_t count, const void *values) {
  if (table() != nullptr) workspaces::attribute_set(descriptor, name, type, count, values);
}
void attribute_got(const void *descriptor, int name, int type, int64_t count, const void *values) {
  if (table() != nullptr) workspaces::attribute_got(descriptor, name, type, count, values);
}

bool learned_workspace(const void *descriptor, int64_t *workspace_bytes) {
  const workspaces::Table *known = table();
  const book::DeviceDescription *device = known != nullptr ? current_device_description() : nullptr;
  workspaces::Plan plan;
  uint64_t bytes = 0;
  if (device == nullptr || !workspaces::find_plan(descriptor, &plan) ||
      !workspaces::look_up(*known, device->name, job_cudnn_version(), plan.key, &bytes))
    return false;
  note_detail("workspaces of cuDNN plans are those that jobs on this GPU model were seen to use with the same cuDNN");
  *workspace_bytes = static_cast<int64_t>(bytes);
  return true;
}

}  // namespace gpumem::virtual_gpu::libraries
