// SPDX-License-Identifier: Apache-2.0
// CUDA driver: initialization, devices, contexts. Part of libgpumem_vgpu.so, preloaded into jobs.

#include <stdio.h>
#include <string.h>

#include "estimator/virtual_gpu/device/facts.h"
#include "estimator/virtual_gpu/device/objects.h"
#include "estimator/virtual_gpu/device/pools.h"
#include "estimator/virtual_gpu/driver/driver.h"

namespace {

struct Context {
  uint32_t kind;
  int device;
  uint32_t flags;
  uint32_t primary;
};

struct Primaries {
  Lock lock;
  Context *contexts[book::kMaxDevices];
  int retained[book::kMaxDevices];
};
constinit Primaries primaries = {};

Error bad_device(int device) {
  const Error error = check_ready();
  if (error != cuda::kSuccess) return error;
  return device < 0 || device >= state.visible_count ? cuda::kInvalidDevice : cuda::kSuccess;
}

// The thread's current context as the driver shows it: none until something made one current.
Context *current_context() {
  return thread_state.bound ? static_cast<Context *>(primary_context(thread_state.device)) : nullptr;
}

Error make_current(const void *context) {
  if (context == nullptr) {
    thread_state.bound = 0;
    return cuda::kSuccess;
  }
  const int device = context_device(context);
  if (device < 0) return cuda::kInvalidContext;
  thread_state.device = device;
  thread_state.bound = 1;
  return cuda::kSuccess;
}

}  // namespace

namespace gpumem::virtual_gpu {

int context_device(const void *context) {
  const Context *object = find<Context>(context, kContextObject);
  return object != nullptr ? object->device : -1;
}

void *primary_context(int device) {
  Locked locked(primaries.lock);
  Context *&context = primaries.contexts[device];
  if (context == nullptr) {
    context = make<Context>(kContextObject);
    if (context != nullptr) {
      context->device = device;
      context->primary = 1;
    }
  }
  return context;
}

}  // namespace gpumem::virtual_gpu

GPUMEM_EXPORT int cuInit(unsigned flags) { return flags != 0 ? cuda::kInvalidValue : check_ready(); }

GPUMEM_EXPORT int cuDriverGetVersion(int *version) {
  if (version == nullptr) return cuda::kInvalidValue;
  *version = open_book() ? static_cast<int>(book::description(state.book, 0)->cuda_version) : 0;
  return cuda::kSuccess;
}

GPUMEM_EXPORT int cuDeviceGetCount(int *count) {
  if (count == nullptr) return cuda::kInvalidValue;
  const Error error = check_ready();
  *count = error == cuda::kSuccess ? state.visible_count : 0;
  return error;
}
GPUMEM_EXPORT int cuDeviceGet(int *device, int ordinal) {
  if (device == nullptr) return cuda::kInvalidValue;
  const Error error = bad_device(ordinal);
  if (error == cuda::kSuccess) *device = ordinal;
  return error;
}
GPUMEM_EXPORT int cuDeviceGetName(char *name, int size, int device) {
  if (name == nullptr) return cuda::kInvalidValue;
  const Error error = bad_device(device);
  if (error == cuda::kSuccess) snprintf(name, static_cast<size_t>(size), "%s", device_description(device)->name);
  return error;
}
GPUMEM_EXPORT int cuDeviceGetUuid(unsigned char *uuid, int device) {
  if (uuid == nullptr) return cuda::kInvalidValue;
  const Error error = bad_device(device);
  if (error == cuda::kSuccess) uuid_bytes(*device_description(device), uuid);
  return error;
}
DRIVER_ALIAS(cuDeviceGetUuid_v2, cuDeviceGetUuid);
GPUMEM_EXPORT int cuDeviceTotalMem_v2(size_t *bytes, int device) {
  if (bytes == nullptr) return cuda::kInvalidValue;
  const Error error = bad_device(device);
  if (error == cuda::kSuccess) *bytes = device_description(device)->total_bytes;
  return error;
}
GPUMEM_EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device) {
  if (value == nullptr) return cuda::kInvalidValue;
  const Error error = bad_device(device);
  if (error != cuda::kSuccess) return error;
  return device_attribute(*device_description(device), device, attribute, value) ? cuda::kSuccess : cuda::kInvalidValue;
}
GPUMEM_EXPORT int cuDeviceComputeCapability(int *major, int *minor, int device) {
  if (major == nullptr || minor == nullptr) return cuda::kInvalidValue;
  const Error error = bad_device(device);
  if (error != cuda::kSuccess) return error;
  *major = static_cast<int>(device_description(device)->compute_major);
  *minor = static_cast<int>(device_description(device)->compute_minor);
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cuDeviceGetProperties(cuda::DriverLegacyProperties *p, int device) {
  if (p == nullptr) return cuda::kInvalidValue;
  const Error error = bad_device(device);
  if (error != cuda::kSuccess) return error;
  const book::DeviceDescription &facts = *device_description(device);
  *p = {static_cast<int>(facts.threads_per_block), {1024, 1024, 64}, {2147483647, 65535, 65535},
        static_cast<int>(facts.shared_per_block), 65536, static_cast<int>(facts.warp_size), 2147483647,
        static_cast<int>(facts.registers_per_block), static_cast<int>(facts.sm_clock_khz), 512};
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cuDeviceGetPCIBusId(char *text, int size, int device) {
  if (text == nullptr) return cuda::kInvalidValue;
  const Error error = bad_device(device);
  if (error != cuda::kSuccess) return error;
  const char *id = device_description(device)->pci_bus_id;
  if (strlen(id) > 12) id += 4;
  snprintf(text, static_cast<size_t>(size), "%s", id);
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cuDeviceGetByPCIBusId(int *device, const char *text) {
  if (device == nullptr || text == nullptr) return cuda::kInvalidValue;
  const Error error = check_ready();
  if (error != cuda::kSuccess) return error;
  for (int d = 0; d < state.visible_count; ++d) {
    if (!same_bus_id(device_description(d)->pci_bus_id, text)) continue;
    *device = d;
    return cuda::kSuccess;
  }
  return cuda::kInvalidDevice;
}
GPUMEM_EXPORT int cuDeviceCanAccessPeer(int *can, int device, int peer) {
  if (can == nullptr) return cuda::kInvalidValue;
  const Error error = bad_device(device) != cuda::kSuccess ? bad_device(device) : bad_device(peer);
  if (error == cuda::kSuccess) *can = device != peer;
  return error;
}
GPUMEM_EXPORT int cuDeviceGetP2PAttribute(int *value, int attribute, int, int) {
  if (value == nullptr) return cuda::kInvalidValue;
  *value = attribute == 2;  // access supported
  return check_ready();
}

// --- Contexts. The primary one of each device is the only one that costs memory; others are names for it. ---

GPUMEM_EXPORT int cuDevicePrimaryCtxRetain(void **context, int device) {
  if (context == nullptr) return cuda::kInvalidValue;
  Error error = bad_device(device);
  if (error == cuda::kSuccess) error = check_device(device);
  if (error != cuda::kSuccess) return error;
  *context = primary_context(device);
  __atomic_add_fetch(&primaries.retained[device], 1, __ATOMIC_RELAXED);
  return *context != nullptr ? cuda::kSuccess : cuda::kOperatingSystem;
}
GPUMEM_EXPORT int cuDevicePrimaryCtxRelease_v2(int device) {
  const Error error = bad_device(device);
  if (error != cuda::kSuccess) return error;
  __atomic_sub_fetch(&primaries.retained[device], 1, __ATOMIC_RELAXED);
  return cuda::kSuccess;
}
DRIVER_ALIAS(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2);
GPUMEM_EXPORT int cuDevicePrimaryCtxReset_v2(int device) { return bad_device(device); }
DRIVER_ALIAS(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2);
GPUMEM_EXPORT int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned) { return bad_device(device); }
DRIVER_ALIAS(cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2);
GPUMEM_EXPORT int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
  if (flags == nullptr || active == nullptr) return cuda::kInvalidValue;
  const Error error = bad_device(device);
  if (error != cuda::kSuccess) return error;
  *flags = 0;
  *active = state.devices[device].used ? 1 : 0;
  return cuda::kSuccess;
}

static int create_context(void **context, unsigned flags, int device) {
  if (context == nullptr) return cuda::kInvalidValue;
  Error error = bad_device(device);
  if (error == cuda::kSuccess) error = check_device(device);
  if (error != cuda::kSuccess) return error;
  Context *object = make<Context>(kContextObject);
  if (object == nullptr) return cuda::kOperatingSystem;
  object->device = device;
  object->flags = flags;
  *context = object;
  return make_current(object);
}
GPUMEM_EXPORT int cuCtxCreate_v2(void **context, unsigned flags, int device) { return create_context(context, flags, device); }
GPUMEM_EXPORT int cuCtxCreate_v3(void **context, void *, int, unsigned flags, int device) { return create_context(context, flags, device); }
GPUMEM_EXPORT int cuCtxCreate_v4(void **context, void *, unsigned flags, int device) { return create_context(context, flags, device); }
GPUMEM_EXPORT int cuCtxDestroy_v2(void *context) {
  Context *object = find<Context>(context, kContextObject);
  if (object == nullptr || object->primary) return cuda::kInvalidContext;
  delete_object(object);
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cuCtxGetCurrent(void **context) {
  if (context == nullptr) return cuda::kInvalidValue;
  const Error error = check_ready();
  if (error == cuda::kSuccess) *context = current_context();
  return error;
}
GPUMEM_EXPORT int cuCtxSetCurrent(void *context) {
  const Error error = check_ready();
  return error != cuda::kSuccess ? error : make_current(context);
}
GPUMEM_EXPORT int cuCtxPushCurrent_v2(void *context) {
  const Error error = check_ready();
  if (error != cuda::kSuccess) return error;
  constexpr int kDepth = sizeof(thread_state.context_stack);
  if (context_device(context) < 0) return cuda::kInvalidContext;
  if (thread_state.context_depth == kDepth) return cuda::kInvalidContext;
  thread_state.context_stack[thread_state.context_depth++] =
      static_cast<signed char>(thread_state.bound ? thread_state.device : -1);
  return make_current(context);
}
GPUMEM_EXPORT int cuCtxPopCurrent_v2(void **context) {
  const Error error = check_ready();
  if (error != cuda::kSuccess) return error;
  if (context != nullptr) *context = current_context();
  if (thread_state.context_depth == 0) {
    if (!thread_state.bound) return cuda::kInvalidContext;
    thread_state.bound = 0;
    return cuda::kSuccess;
  }
  const int device = thread_state.context_stack[--thread_state.context_depth];
  thread_state.bound = device >= 0;
  if (device >= 0) thread_state.device = device;
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cuCtxGetDevice(int *device) {
  if (device == nullptr) return cuda::kInvalidValue;
  const Error error = check_ready();
  if (error != cuda::kSuccess) return error;
  if (!thread_state.bound) return cuda::kInvalidContext;
  *device = thread_state.device;
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cuCtxGetFlags(unsigned *flags) {
  if (flags == nullptr) return cuda::kInvalidValue;
  *flags = 0;
  return check_ready();
}
GPUMEM_EXPORT int cuCtxGetApiVersion(void *, unsigned *version) {
  if (version == nullptr) return cuda::kInvalidValue;
  *version = 3020;  // the context API's version, which has not changed since CUDA 3.2
  return check_ready();
}
GPUMEM_EXPORT int cuCtxSynchronize() {
  const Error error = check_current();
  if (error != cuda::kSuccess) return error;
  synchronize_device(thread_state.device);
  trim_all_pools();
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return check_ready();
}
GPUMEM_EXPORT int cuCtxGetLimit(size_t *value, int limit) {
  const Error error = check_ready();
  return error != cuda::kSuccess ? error : get_limit(limit, value) ? cuda::kSuccess : cuda::kInvalidValue;
}
GPUMEM_EXPORT int cuCtxSetLimit(int limit, size_t value) {
  const Error error = check_ready();
  return error != cuda::kSuccess ? error : set_limit(limit, value) ? cuda::kSuccess : cuda::kInvalidValue;
}
GPUMEM_EXPORT int cuCtxGetCacheConfig(int *config) {
  if (config == nullptr) return cuda::kInvalidValue;
  *config = 0;
  return check_ready();
}
GPUMEM_EXPORT int cuCtxSetCacheConfig(int) { return check_ready(); }
GPUMEM_EXPORT int cuCtxEnablePeerAccess(void *peer, unsigned) {
  const int device = context_device(peer);
  if (device < 0) return cuda::kInvalidContext;
  uint32_t &peers = state.devices[thread_state.device].peers;
  if (peers & (1u << device)) return cuda::kPeerAccessAlreadyEnabled;
  peers |= 1u << device;
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cuCtxDisablePeerAccess(void *peer) {
  const int device = context_device(peer);
  if (device < 0) return cuda::kInvalidContext;
  uint32_t &peers = state.devices[thread_state.device].peers;
  if (!(peers & (1u << device))) return cuda::kPeerAccessNotEnabled;
  peers &= ~(1u << device);
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cuProfilerStart() { return check_ready(); }
GPUMEM_EXPORT int cuProfilerStop() { return check_ready(); }
