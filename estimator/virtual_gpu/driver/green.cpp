// SPDX-License-Identifier: Apache-2.0
// CUDA driver: green contexts (a part of a device's multiprocessors, as torch.cuda.GreenContext uses them). Part of libgpumem_vgpu.so.
//
// Kernels are not run, so a part is a number of multiprocessors. What a green context costs in device memory is not documented and
// not charged; its context is the device's primary one, as the current context always is.

#include <string.h>

#include "estimator/virtual_gpu/device/objects.h"
#include "estimator/virtual_gpu/driver/driver.h"

namespace {

constexpr int kMultiprocessors = 1;  // CUdevResourceType
constexpr int kNoSuchType = 914;     // CUDA_ERROR_INVALID_RESOURCE_TYPE
constexpr int kBadConfiguration = 915;

// CUdevResource of 12.4 to 13: a type, padding, then what the type has.
struct Resource {
  int type;
  unsigned char padding[92];
  unsigned count;                          // of multiprocessors
  unsigned least, alignment, flags;        // since 13
  unsigned char rest[32];
};
static_assert(sizeof(Resource) == 144);

struct ResourceDescription {  // CUdevResourceDesc
  uint32_t kind;
  unsigned count;
};
struct Green {
  uint32_t kind;
  int device;
  unsigned count;
};

// CUDA C++ Programming Guide, "Green Contexts": partitions are multiples of this many multiprocessors, and at least that large.
unsigned unit_of(const book::DeviceDescription &facts) { return facts.compute_major >= 9 ? 8 : facts.compute_major >= 8 ? 4 : 2; }

Error give(Resource *resource, int device, unsigned count, int type) {
  const book::DeviceDescription *facts = device_description(device);
  if (facts == nullptr) return cuda::kInvalidDevice;
  if (resource == nullptr) return cuda::kInvalidValue;
  if (type != kMultiprocessors) return static_cast<Error>(kNoSuchType);
  *resource = {};
  resource->type = type;
  resource->count = count;
  resource->least = resource->alignment = unit_of(*facts);
  return cuda::kSuccess;
}

const Green *green_of(const void *context) { return find<Green>(context, kGreenObject); }

}  // namespace

GPUMEM_EXPORT int cuDeviceGetDevResource(int device, Resource *resource, int type) {
  const Error error = check_ready();
  const book::DeviceDescription *facts = device_description(device);
  return error != cuda::kSuccess ? error : give(resource, device, facts != nullptr ? facts->sm_count : 0, type);
}
GPUMEM_EXPORT int cuCtxGetDevResource(const void *context, Resource *resource, int type) {
  const int device = context_device(context);
  return device < 0 ? static_cast<int>(cuda::kInvalidContext) : cuDeviceGetDevResource(device, resource, type);
}
GPUMEM_EXPORT int cuGreenCtxGetDevResource(const void *context, Resource *resource, int type) {
  const Green *green = green_of(context);
  return green == nullptr ? cuda::kInvalidContext : give(resource, green->device, green->count, type);
}

// As many groups of `least` multiprocessors (rounded up to what the device can divide) as fit and are asked for; the rest remains.
GPUMEM_EXPORT int cuDevSmResourceSplitByCount(Resource *groups, unsigned *count, const Resource *input, Resource *remainder, unsigned, unsigned least) {
  if (count == nullptr || input == nullptr) return cuda::kInvalidValue;
  if (input->type != kMultiprocessors) return kNoSuchType;
  const unsigned unit = input->alignment != 0 ? input->alignment : 2;
  const unsigned each = least == 0 ? unit : (least + unit - 1) / unit * unit;
  if (least > input->count || each > input->count) return kBadConfiguration;
  const unsigned most = input->count / each;
  if (groups == nullptr) {
    *count = most;
    return cuda::kSuccess;
  }
  if (*count > most) *count = most;
  const Resource given = *input;
  for (unsigned i = 0; i < *count; ++i) {
    groups[i] = given;
    groups[i].count = each;
  }
  if (remainder != nullptr) {
    *remainder = given;
    remainder->count = given.count - *count * each;
    if (remainder->count == 0) remainder->type = 0;  // CU_DEV_RESOURCE_TYPE_INVALID: nothing is left
  }
  return cuda::kSuccess;
}

GPUMEM_EXPORT int cuDevResourceGenerateDesc(void **description, const Resource *resources, unsigned count) {
  if (description == nullptr || resources == nullptr || count == 0) return cuda::kInvalidValue;
  unsigned all = 0;
  for (unsigned i = 0; i < count; ++i) {
    if (resources[i].type != kMultiprocessors) return kNoSuchType;
    all += resources[i].count;
  }
  ResourceDescription *made = make<ResourceDescription>(kResourceObject);
  if (made == nullptr) return cuda::kOperatingSystem;
  made->count = all;
  *description = made;
  return cuda::kSuccess;
}

GPUMEM_EXPORT int cuGreenCtxCreate(void **context, void *description, int device, unsigned) {
  const ResourceDescription *wanted = find<ResourceDescription>(description, kResourceObject);
  if (context == nullptr || wanted == nullptr) return cuda::kInvalidValue;
  const Error error = check_device(device);
  if (error != cuda::kSuccess) return error;
  if (wanted->count > device_description(device)->sm_count) return kBadConfiguration;
  Green *made = make<Green>(kGreenObject);
  if (made == nullptr) return cuda::kOperatingSystem;
  made->device = device;
  made->count = wanted->count;
  *context = made;
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cuGreenCtxDestroy(void *context) {
  if (green_of(context) == nullptr) return cuda::kInvalidContext;
  delete_object(context);
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cuCtxFromGreenCtx(void **context, void *green_context) {
  const Green *green = green_of(green_context);
  if (green == nullptr || context == nullptr) return green == nullptr ? cuda::kInvalidContext : cuda::kInvalidValue;
  *context = primary_context(green->device);
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cuGreenCtxStreamCreate(Stream *stream, void *context, unsigned flags, int priority) {
  const Green *green = green_of(context);
  if (green == nullptr || stream == nullptr) return green == nullptr ? cuda::kInvalidContext : cuda::kInvalidValue;
  const int before = thread_state.device;
  thread_state.device = green->device;
  const Error error = create_stream(flags, priority, stream);
  thread_state.device = before;
  return error;
}
GPUMEM_EXPORT int cuGreenCtxRecordEvent(void *context, void *event) {
  return green_of(context) == nullptr ? cuda::kInvalidContext : record_event(event, nullptr);
}
GPUMEM_EXPORT int cuGreenCtxWaitEvent(void *context, void *event) {
  return green_of(context) == nullptr ? cuda::kInvalidContext : wait_event(nullptr, event);
}
GPUMEM_EXPORT int cuGreenCtxGetId(const void *context, unsigned long long *id) {
  if (green_of(context) == nullptr || id == nullptr) return green_of(context) == nullptr ? cuda::kInvalidContext : cuda::kInvalidValue;
  *id = reinterpret_cast<uintptr_t>(context);
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cuStreamGetGreenCtx(Stream stream, void **context) {
  if (context == nullptr) return cuda::kInvalidValue;
  *context = nullptr;  // of a stream that a green context did not make; which one made it is not kept
  return check_stream(stream);
}
// A stream of a green context is not told from others: all of the device's multiprocessors are its own.
GPUMEM_EXPORT int cuStreamGetDevResource(Stream stream, Resource *resource, int type) {
  const Error error = check_stream(stream);
  const StreamObject *object = find_stream(stream);
  return error != cuda::kSuccess ? static_cast<int>(error) : cuDeviceGetDevResource(object != nullptr ? object->device : thread_state.device, resource, type);
}
DRIVER_ALIAS(cuStreamGetDevResource_ptsz, cuStreamGetDevResource);
