// SPDX-License-Identifier: Apache-2.0
// cuDNN's backend interface: passed on unchanged; what workspaces its plans in use have is written down, so that estimates
// for the same GPU and cuDNN know them (doc/contracts.md, "Learned workspaces"). Runs in a job's processes.
//
// Without GPUMEM_WORKSPACES_SEEN (a file that gpumemd has made for the job; never on virtual GPUs) nothing is followed.
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "estimator/meter/meter.h"
#include "estimator/workspaces/plans.h"
#include "estimator/workspaces/table.h"

namespace gpumem::meter {
namespace {

enum : int { kNotInitializedByCudnn = 1001, kPlanType = 5, kPlanWorkspace = 402, kTypeInt64 = 3 };

// The file's path, nullptr when nothing is to be written. Looked at once: programs that change it change nothing.
const char *seen_path() {
  static char path[4096];
  static int state;  // 0 not looked, 1 none, 2 there
  if (state == 0) {
    const char *value = getenv("GPUMEM_WORKSPACES_SEEN");
    const bool usable = value != nullptr && value[0] == '/' && strlen(value) < sizeof path;
    if (usable) memcpy(path, value, strlen(value) + 1);
    __atomic_store_n(&state, usable ? 2 : 1, __ATOMIC_RELEASE);
  }
  return __atomic_load_n(&state, __ATOMIC_ACQUIRE) == 2 ? path : nullptr;
}

template <class... Arguments>
int pass_on_cudnn(const char *name, Arguments... arguments) {
  auto next = reinterpret_cast<int (*)(Arguments...)>(next_function(name));
  return next == nullptr ? kNotInitializedByCudnn : next(arguments...);
}

// One line, appended at once: processes of a job share the file.
void write_down(const workspaces::Plan &plan, int64_t workspace_bytes) {
  auto version = reinterpret_cast<size_t (*)()>(next_function("cudnnGetVersion"));
  int device = -1;
  const char *gpu = pass_on("cudaGetDevice", &device) == 0 ? device_name(device) : nullptr;
  if (version == nullptr || gpu == nullptr || workspace_bytes < 0) return;
  const workspaces::Entry entry{gpu,      strlen(gpu), version(), plan.key, static_cast<uint64_t>(workspace_bytes),
                                plan.label, strlen(plan.label)};
  char line[workspaces::kMaxLine];
  const size_t length = workspaces::format(entry, line, sizeof line);
  const int fd = length != 0 ? open(seen_path(), O_WRONLY | O_APPEND | O_CLOEXEC) : -1;
  if (fd < 0) return;
  const ssize_t written = write(fd, line, length);
  (void)written;
  close(fd);
}

}  // namespace

GPUMEM_EXPORT int cudnnBackendCreateDescriptor(int type, void **descriptor) {
  const int status = pass_on_cudnn("cudnnBackendCreateDescriptor", type, descriptor);
  if (status == 0 && descriptor != nullptr && seen_path() != nullptr) workspaces::created(*descriptor, type);
  return status;
}
GPUMEM_EXPORT int cudnnBackendDestroyDescriptor(void *descriptor) {
  if (seen_path() != nullptr) workspaces::destroyed(descriptor);
  return pass_on_cudnn("cudnnBackendDestroyDescriptor", descriptor);
}
GPUMEM_EXPORT int cudnnBackendSetAttribute(void *descriptor, int name, int type, int64_t count, const void *values) {
  const int status = pass_on_cudnn("cudnnBackendSetAttribute", descriptor, name, type, count, values);
  if (status == 0 && seen_path() != nullptr) workspaces::attribute_set(descriptor, name, type, count, values);
  return status;
}
GPUMEM_EXPORT int cudnnBackendGetAttribute(void *descriptor, int name, int type, int64_t requested, int64_t *count, void *values) {
  int64_t got = 0;
  const int status = pass_on_cudnn("cudnnBackendGetAttribute", descriptor, name, type, requested, count != nullptr ? count : &got, values);
  if (status == 0 && seen_path() != nullptr) {
    const int64_t answered = count != nullptr ? *count : got;
    workspaces::attribute_got(descriptor, name, type, answered < requested ? answered : requested, values);
  }
  return status;
}
GPUMEM_EXPORT int cudnnBackendExecute(void *handle, void *descriptor, void *variant_pack) {
  const int status = pass_on_cudnn("cudnnBackendExecute", handle, descriptor, variant_pack);
  workspaces::Plan plan;
  if (status == 0 && seen_path() != nullptr && workspaces::executed(descriptor, &plan)) {
    int64_t count = 0, workspace_bytes = -1;
    if (pass_on_cudnn("cudnnBackendGetAttribute", descriptor, int{kPlanWorkspace}, int{kTypeInt64}, int64_t{1}, &count,
                      static_cast<void *>(&workspace_bytes)) == 0 && count == 1)
      write_down(plan, workspace_bytes);
  }
  return status;
}

}  // namespace gpumem::meter
