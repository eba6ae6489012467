// SPDX-License-Identifier: Apache-2.0
// cuDNN's backend (graph) interface, passed to the real library with a device-property descriptor in place of a handle.
// Runs in the job's processes.
//
// Note [Engines compiled at run time]
// Some of cuDNN's engines are finished by NVRTC and loaded through the driver when a plan is finalized, which is not
// possible here. Their plans count as finalized, as they would be on the GPU, and their workspace is the one that was
// learned on the nodes (cudnn_learned.h), else the one that cuDNN's heuristics put into the engine configuration. What
// PyTorch's attention needs beside it (the sums of dQ and of the softmax) its own front end adds. The estimate says so.
//
// Note [Another cuDNN's plans]
// Where the job's own cuDNN is too old to plan, the installed one does. A workspace that jobs with the job's own version were seen
// to use on this GPU model for the same graph is the better evidence: it stands for the first plan that is finished, the one
// that a program takes unless it benchmarks. The others of a benchmark keep the size that the installed cuDNN gives.
//
// Note [No cuDNN that plans]
// Then descriptors are empty, every heuristic gives one engine configuration, and its workspace is the one that was
// learned on the nodes, else 0: the last choice that PyTorch has on a full GPU too, so a job lives with that limit. The
// estimate says which.
//
// Note [Benchmarked plans]
// With torch.backends.cudnn.benchmark the program times every plan and keeps the fastest. Kernels take no time here, so
// the choice would be the host's noise and differ from run to run. cuDNN's heuristics list plans by their expected
// speed: each plan's first executions are made slower on the simulated clock by its place in that list, and so the
// program keeps the one that cuDNN expects to be fastest.
#include <string.h>

#include "estimator/virtual_gpu/libraries/cudnn_learned.h"
#include "estimator/virtual_gpu/libraries/cudnn_real.h"
#include "estimator/virtual_gpu/libraries/library.h"

using namespace gpumem::virtual_gpu;
using namespace gpumem::virtual_gpu::libraries;

namespace {

// From cudnn_graph.h (9.19); stable since 8.0, the device-property ones since 9.8.
enum : int {
  kSuccess = 0, kAllocFailed = 1003, kBadParam = 2000, kNotSupported = 3000,
  kEngineDescriptor = 2, kEngineHeurDescriptor = 4, kExecutionPlanDescriptor = 5, kDevicePropDescriptor = 38,
  kHeurResults = 202, kHeurDeviceProp = 204, kConfigEngine = 300, kConfigWorkspace = 303,
  kPlanConfig = 401, kPlanWorkspace = 402, kPlanJson = 405, kPlanDeviceProp = 407,
  kEngineBehaviorNote = 1305, kEngineDeviceProp = 1307, kDevicePropJson = 2702,
  kTypeHandle = 0, kTypeInt64 = 3, kTypeDescriptor = 15, kTypeBehaviorNote = 19, kTypeChar = 24,
  kNoteRuntimeCompilation = 0,
};
constexpr int kBehaviorNotes = 8;  // more than CUDNN_BEHAVIOR_NOTE_TYPE_COUNT

// What we know of a plan beside the real descriptor.
struct Plan {
  Plan *next;
  void *descriptor;
  uint32_t place;       // in the order in which plans were made since the last heuristics on this thread
  uint32_t executions;
  bool compiled;        // Note [Engines compiled at run time]
  bool first;           // of those that were finished since the last heuristics: what a program takes that does not benchmark
  int64_t workspace_bytes;
};
constexpr size_t kBuckets = 4096;
constexpr uint32_t kTimedExecutions = 4;            // PyTorch warms up once and takes the median of three
constexpr uint64_t kPlaceNs = 100 * 1000 * 1000;    // far above the host's noise
Lock plans_lock;
Plan *plans[kBuckets];
thread_local uint32_t next_place, finished_plans, first_executions;  // since the last heuristics

Plan **slot(const void *descriptor) {
  Plan **link = &plans[reinterpret_cast<uintptr_t>(descriptor) / 16 % kBuckets];
  while (*link != nullptr && (*link)->descriptor != descriptor) link = &(*link)->next;
  return link;
}

void remember_plan(void *descriptor) {
  Locked locked(plans_lock);
  Plan **link = slot(descriptor);
  if (*link == nullptr) *link = static_cast<Plan *>(allocate_zeroed(sizeof(Plan)));
  if (*link == nullptr) return;
  (*link)->descriptor = descriptor;
  (*link)->place = next_place++;
  (*link)->executions = 0;
  (*link)->compiled = (*link)->first = false;
}

void forget_plan(const void *descriptor) {
  Locked locked(plans_lock);
  Plan **link = slot(descriptor);
  Plan *found = *link;
  if (found == nullptr) return;
  *link = found->next;
  release_zeroed(found);
}

void set_compiled(const void *descriptor, int64_t workspace_bytes) {
  Locked locked(plans_lock);
  Plan *found = *slot(descriptor);
  if (found == nullptr) return;
  found->compiled = true;
  found->workspace_bytes = workspace_bytes;
}

bool is_compiled(const void *descriptor, int64_t *workspace_bytes) {
  Locked locked(plans_lock);
  Plan *found = *slot(descriptor);
  if (found == nullptr || !found->compiled) return false;
  if (workspace_bytes != nullptr) *workspace_bytes = found->workspace_bytes;
  return true;
}

void set_finished(const void *descriptor) {
  Locked locked(plans_lock);
  if (Plan *found = *slot(descriptor)) found->first = finished_plans++ == 0;
}

bool finished_first(const void *descriptor) {
  Locked locked(plans_lock);
  const Plan *found = *slot(descriptor);
  return found != nullptr && found->first;
}

// Extra time of this execution of the plan: Note [Benchmarked plans].
uint64_t extra_time_ns(const void *descriptor) {
  plans_lock.lock();
  Plan *found = *slot(descriptor);
  const uint32_t execution = found != nullptr ? found->executions++ : kTimedExecutions;
  const uint64_t extra = execution < kTimedExecutions ? found->place * kPlaceNs : 0;
  plans_lock.unlock();
  if (execution == 0 && ++first_executions == 2)
    note_guess("the program benchmarks cuDNN's plans: taken to keep the ones that cuDNN's heuristics expect to be fastest");
  return extra;
}

// The device-property descriptor of a device, made once; nullptr when the profile has no description for cuDNN or cuDNN refuses it.
void *device_property(const RealCudnn &real) {
  static Lock lock;
  static void *made[book::kMaxDevices];
  static bool tried[book::kMaxDevices];
  int device = current_device();
  if (device < 0 || device >= book::kMaxDevices) return nullptr;
  Locked locked(lock);
  if (tried[device]) return made[device];
  tried[device] = true;
  const book::DeviceDescription *description = device_description(device);
  if (description == nullptr || description->cudnn_device_json[0] == '\0') {
    note_guess("the GPU's profile has no description for cuDNN: convolution workspaces are taken as 0");
    return nullptr;
  }
  void *descriptor = nullptr;
  const char *json = description->cudnn_device_json;
  if (real.create(kDevicePropDescriptor, &descriptor) != kSuccess) return nullptr;
  if (real.set(descriptor, kDevicePropJson, kTypeChar, static_cast<int64_t>(strlen(json)), json) != kSuccess ||
      real.finalize(descriptor) != kSuccess) {
    real.destroy(descriptor);
    note_guess("cuDNN refused the GPU's description: convolution workspaces are taken as 0");
    return nullptr;
  }
  return made[device] = descriptor;
}

// --- Note [No cuDNN that plans] ---

struct EmptyDescriptor {
  uint32_t magic;
  int type;
};
constexpr uint32_t kEmpty = 0x63456d70;

// The first cuDNN call decides for the process whether the real one plans; descriptors of both kinds cannot mix.
const RealCudnn *planner() {
  const RealCudnn *real = real_cudnn();
  return real != nullptr && device_property(*real) != nullptr ? real : nullptr;
}

int empty_get(void *descriptor, int name, int type, int64_t requested, int64_t *count, void *values) {
  int64_t available = name == kHeurResults || name == kConfigEngine ? 1 : 0;
  if (name == kPlanWorkspace) {
    available = 1;
    int64_t workspace_bytes = 0;
    if (!learned_workspace(descriptor, &workspace_bytes))
      note_guess("no cuDNN 9.8 or newer could be asked, and nothing was learned on the nodes: convolution workspaces are taken as 0");
    if (requested > 0 && values != nullptr) *static_cast<int64_t *>(values) = workspace_bytes;
  } else if (name == kConfigWorkspace) {
    available = 1;
    if (requested > 0 && values != nullptr) *static_cast<int64_t *>(values) = 0;
  } else if (type == kTypeInt64 && requested > 0 && values != nullptr) {
    available = 1;  // an engine's index and the like
    *static_cast<int64_t *>(values) = 0;
  }
  if (count != nullptr) *count = available;
  attribute_got(descriptor, name, type, requested < available ? requested : available, values);
  return kSuccess;
}

// cuDNN 8 has other numbers for the words of cuDNN 9 (cudnn_ops_infer.h of 8.9, cudnn_graph.h of 9.19): programs compare them.
int for_the_job(int status) {
  if (status == kSuccess || job_cudnn_version() >= 90000) return status;
  if (status == kAllocFailed) return 2;      // CUDNN_STATUS_ALLOC_FAILED
  switch (status / 1000) {
    case 1: return 1;                        // CUDNN_STATUS_NOT_INITIALIZED
    case 2: return 3;                        // CUDNN_STATUS_BAD_PARAM
    case 3: return 9;                        // CUDNN_STATUS_NOT_SUPPORTED
    case 5: return 8;                        // CUDNN_STATUS_EXECUTION_FAILED
    default: return 4;                       // CUDNN_STATUS_INTERNAL_ERROR
  }
}

// True for an engine that only a driver can finish; then the workspace of its configuration.
bool runtime_compiled(const RealCudnn &real, void *config, int64_t *workspace_bytes) {
  void *engine = nullptr;
  if (real.create(kEngineDescriptor, &engine) != kSuccess) return false;
  int64_t count = 0;
  bool compiled = false;
  if (real.get(config, kConfigEngine, kTypeDescriptor, 1, &count, &engine) == kSuccess && count == 1) {
    int notes[kBehaviorNotes];
    if (real.get(engine, kEngineBehaviorNote, kTypeBehaviorNote, kBehaviorNotes, &count, notes) == kSuccess)
      for (int64_t i = 0; i < count && i < kBehaviorNotes; i++) compiled = compiled || notes[i] == kNoteRuntimeCompilation;
  }
  real.destroy(engine);
  *workspace_bytes = 0;
  if (compiled) real.get(config, kConfigWorkspace, kTypeInt64, 1, &count, workspace_bytes);
  if (*workspace_bytes < 0) *workspace_bytes = 0;
  return compiled;
}

}  // namespace

GPUMEM_EXPORT int cudnnBackendCreateDescriptor(int type, void **descriptor) {
  if (descriptor == nullptr) return kBadParam;
  const RealCudnn *real = planner();
  if (real == nullptr) {
    auto *empty = static_cast<EmptyDescriptor *>(allocate_zeroed(sizeof(EmptyDescriptor)));
    if (empty == nullptr) return kAllocFailed;
    empty->magic = kEmpty;
    empty->type = type;
    *descriptor = empty;
    descriptor_created(empty, type);
    return kSuccess;
  }
  int status = real->create(type, descriptor);
  if (status != kSuccess) return for_the_job(status);
  descriptor_created(*descriptor, type);
  if (type == kEngineHeurDescriptor) next_place = finished_plans = first_executions = 0;
  if (type == kExecutionPlanDescriptor) remember_plan(*descriptor);
  int name = type == kEngineHeurDescriptor      ? kHeurDeviceProp
             : type == kExecutionPlanDescriptor ? kPlanDeviceProp
             : type == kEngineDescriptor        ? kEngineDeviceProp
                                                : 0;
  if (name == 0) return kSuccess;
  void *property = device_property(*real);
  return for_the_job(real->set(*descriptor, name, kTypeDescriptor, 1, &property));
}

GPUMEM_EXPORT int cudnnBackendDestroyDescriptor(void *descriptor) {
  if (descriptor == nullptr) return kSuccess;
  const RealCudnn *real = planner();
  descriptor_destroyed(descriptor);
  if (real == nullptr) {
    release_zeroed(descriptor);
    return kSuccess;
  }
  forget_plan(descriptor);
  return for_the_job(real->destroy(descriptor));
}

GPUMEM_EXPORT int cudnnBackendInitialize(void *) { return for_the_job(kNotSupported); }

GPUMEM_EXPORT int cudnnBackendSetAttribute(void *descriptor, int name, int type, int64_t count, const void *values) {
  if (descriptor == nullptr) return kBadParam;
  if (type == kTypeHandle) return kSuccess;  // the device-property descriptor stands in its place
  const RealCudnn *real = planner();
  if (real == nullptr) {
    attribute_set(descriptor, name, type, count, values);
    return kSuccess;
  }
  int status = real->set(descriptor, name, type, count, values);
  if (status != kSuccess) return for_the_job(status);
  attribute_set(descriptor, name, type, count, values);
  if (name == kPlanConfig && count == 1 && values != nullptr) {
    int64_t workspace_bytes;
    if (runtime_compiled(*real, *static_cast<void *const *>(values), &workspace_bytes)) set_compiled(descriptor, workspace_bytes);
  }
  return kSuccess;
}

GPUMEM_EXPORT int cudnnBackendFinalize(void *descriptor) {
  if (descriptor == nullptr) return kBadParam;
  const RealCudnn *real = planner();
  if (real == nullptr) return kSuccess;
  const int status = is_compiled(descriptor, nullptr) ? static_cast<int>(kSuccess) : real->finalize(descriptor);
  if (status == kSuccess) set_finished(descriptor);
  return for_the_job(status);
}

GPUMEM_EXPORT int cudnnBackendGetAttribute(void *descriptor, int name, int type, int64_t requested, int64_t *count, void *values) {
  if (descriptor == nullptr) return kBadParam;
  const RealCudnn *real = planner();
  if (real == nullptr) return empty_get(descriptor, name, type, requested, count, values);
  int64_t workspace_bytes;
  if (name == kPlanWorkspace && is_compiled(descriptor, &workspace_bytes)) {
    if (!learned_workspace(descriptor, &workspace_bytes))
      note_guess("cuDNN chose engines that it compiles on the GPU: their workspaces are those of its heuristics, not of finished plans");
    if (count != nullptr) *count = 1;
    if (requested > 0 && values != nullptr) *static_cast<int64_t *>(values) = workspace_bytes;
    return kSuccess;
  }
  if (name == kPlanWorkspace && real->version != job_cudnn_version() && finished_first(descriptor) &&
      learned_workspace(descriptor, &workspace_bytes)) {  // Note [Another cuDNN's plans]
    if (count != nullptr) *count = 1;
    if (requested > 0 && values != nullptr) *static_cast<int64_t *>(values) = workspace_bytes;
    return kSuccess;
  }
  if (name == kPlanJson && is_compiled(descriptor, nullptr)) return for_the_job(kNotSupported);
  int64_t got = 0;
  const int status = real->get(descriptor, name, type, requested, count != nullptr ? count : &got, values);
  if (status != kSuccess) return for_the_job(status);
  if (count != nullptr) got = *count;
  attribute_got(descriptor, name, type, got < requested ? got : requested, values);
  return kSuccess;
}

GPUMEM_EXPORT int cudnnGetStream(void *handle, Stream *stream);

GPUMEM_EXPORT int cudnnBackendExecute(void *handle, void *plan, void *variant_pack) {
  Stream stream = nullptr;
  if (plan == nullptr || variant_pack == nullptr) return kBadParam;
  int status = cudnnGetStream(handle, &stream);
  if (status != kSuccess) return status;
  count_launch(stream);
  if (uint64_t extra = extra_time_ns(plan)) advance_clock(stream, extra);
  return kSuccess;
}
