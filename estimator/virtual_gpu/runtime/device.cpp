// SPDX-License-Identifier: Apache-2.0
// CUDA runtime: devices, their properties and attributes, peers, limits. Part of libgpumem_vgpu.so, preloaded into jobs.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "estimator/virtual_gpu/device/facts.h"
#include "estimator/virtual_gpu/device/pools.h"
#include "estimator/virtual_gpu/runtime/runtime.h"

GPUMEM_EXPORT int cudaGetDeviceCount(int *count) {
  if (count == nullptr) return done(cuda::kInvalidValue);
  *count = 0;
  const Error error = check_ready();
  if (error == cuda::kSuccess) *count = state.visible_count;
  return done(error);
}

GPUMEM_EXPORT int cudaGetDevice(int *device) {
  if (device == nullptr) return done(cuda::kInvalidValue);
  const Error error = check_ready();
  if (error == cuda::kSuccess) *device = thread_state.device;
  return done(error);
}

static Error set_device(int device, bool make_context) {
  const Error error = check_ready();
  if (error != cuda::kSuccess) return error;
  if (device < 0 || device >= state.visible_count) return cuda::kInvalidDevice;
  thread_state.device = device;
  return make_context ? check_current() : cuda::kSuccess;
}

// Since CUDA 12 cudaSetDevice makes the device's context at once; before, the next call that needs one did.
VERSIONED(cudaSetDevice, CUDA11) int cudaSetDevice_cuda11(int device) { return done(set_device(device, false)); }
VERSIONED(cudaSetDevice, CUDA12) int cudaSetDevice_cuda12(int device) { return done(set_device(device, true)); }
VERSIONED(cudaSetDevice, CUDA13) int cudaSetDevice_cuda13(int device) { return done(set_device(device, true)); }

GPUMEM_EXPORT int cudaInitDevice(int device, unsigned, unsigned) { return done(check_device(device)); }

GPUMEM_EXPORT int cudaSetValidDevices(int *, int) { return done(check_ready()); }

GPUMEM_EXPORT int cudaChooseDevice(int *device, const void *) {
  if (device == nullptr) return done(cuda::kInvalidValue);
  const Error error = check_ready();
  if (error == cuda::kSuccess) *device = 0;
  return done(error);
}

static Error get_properties(void *properties, int device, int generation) {
  const Error error = check_ready();
  if (error != cuda::kSuccess) return error;
  if (properties == nullptr) return cuda::kInvalidValue;
  return fill_properties(properties, device, generation) ? cuda::kSuccess : cuda::kInvalidDevice;
}

// CUDA 12's header maps the plain name to _v2; its library keeps the plain one with CUDA 11's layout.
VERSIONED(cudaGetDeviceProperties, CUDA11) int cudaGetDeviceProperties_cuda11(void *properties, int device) {
  return done(get_properties(properties, device, 11));
}
VERSIONED(cudaGetDeviceProperties, CUDA12) int cudaGetDeviceProperties_cuda12(void *properties, int device) {
  return done(get_properties(properties, device, 11));
}
VERSIONED(cudaGetDeviceProperties, CUDA13) int cudaGetDeviceProperties_cuda13(void *properties, int device) {
  return done(get_properties(properties, device, 13));
}
GPUMEM_EXPORT int cudaGetDeviceProperties_v2(void *properties, int device) {
  return done(get_properties(properties, device, 12));
}

GPUMEM_EXPORT int cudaDeviceGetAttribute(int *value, int attribute, int device) {
  const Error error = check_ready();
  if (error != cuda::kSuccess) return done(error);
  if (value == nullptr) return done(cuda::kInvalidValue);
  const book::DeviceDescription *facts = device_description(device);
  if (facts == nullptr) return done(cuda::kInvalidDevice);
  return done(device_attribute(*facts, device, attribute, value) ? cuda::kSuccess : cuda::kInvalidValue);
}

GPUMEM_EXPORT int cudaDeviceGetPCIBusId(char *text, int size, int device) {
  const Error error = check_ready();
  if (error != cuda::kSuccess) return done(error);
  const book::DeviceDescription *facts = device_description(device);
  if (facts == nullptr) return done(cuda::kInvalidDevice);
  if (text == nullptr || size < 13) return done(cuda::kInvalidValue);
  // The runtime writes a domain of four digits, NVML and the book eight.
  const char *id = facts->pci_bus_id;
  if (strlen(id) > 12) id += 4;
  snprintf(text, static_cast<size_t>(size), "%s", id);
  return cuda::kSuccess;
}

GPUMEM_EXPORT int cudaDeviceGetByPCIBusId(int *device, const char *text) {
  if (device == nullptr) return done(cuda::kInvalidValue);
  const Error error = check_ready();
  if (error != cuda::kSuccess) return done(error);
  if (text == nullptr) return done(cuda::kInvalidValue);
  for (int d = 0; d < state.visible_count; ++d) {
    if (!same_bus_id(device_description(d)->pci_bus_id, text)) continue;
    *device = d;
    return cuda::kSuccess;
  }
  return done(cuda::kInvalidDevice);
}

GPUMEM_EXPORT int cudaDeviceSynchronize() {
  const Error error = check_current();
  if (error != cuda::kSuccess) return done(error);
  synchronize_device(thread_state.device);
  trim_all_pools();
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cudaThreadSynchronize() { return cudaDeviceSynchronize(); }

// Resetting a device ends its context in the process. What the program allocated stays charged until it is freed.
GPUMEM_EXPORT int cudaDeviceReset() { return done(check_ready()); }
GPUMEM_EXPORT int cudaThreadExit() { return cudaDeviceReset(); }

GPUMEM_EXPORT int cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  const Error error = check_current();
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return done(error);
}

GPUMEM_EXPORT int cudaDeviceCanAccessPeer(int *can, int device, int peer) {
  const Error error = check_ready();
  if (error != cuda::kSuccess) return done(error);
  if (can == nullptr || device < 0 || peer < 0 || device >= state.visible_count || peer >= state.visible_count)
    return done(cuda::kInvalidDevice);
  *can = device != peer;
  return cuda::kSuccess;
}

GPUMEM_EXPORT int cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  const Error error = check_current();
  if (error != cuda::kSuccess) return done(error);
  if (flags != 0) return done(cuda::kInvalidValue);
  if (peer < 0 || peer >= state.visible_count || peer == thread_state.device) return done(cuda::kInvalidDevice);
  uint32_t &peers = state.devices[thread_state.device].peers;
  if (peers & (1u << peer)) return done(cuda::kPeerAccessAlreadyEnabled);
  peers |= 1u << peer;
  return cuda::kSuccess;
}

GPUMEM_EXPORT int cudaDeviceDisablePeerAccess(int peer) {
  const Error error = check_current();
  if (error != cuda::kSuccess) return done(error);
  if (peer < 0 || peer >= state.visible_count) return done(cuda::kInvalidDevice);
  uint32_t &peers = state.devices[thread_state.device].peers;
  if (!(peers & (1u << peer))) return done(cuda::kPeerAccessNotEnabled);
  peers &= ~(1u << peer);
  return cuda::kSuccess;
}

GPUMEM_EXPORT int cudaDeviceGetP2PAttribute(int *value, int attribute, int source, int destination) {
  if (value == nullptr) return done(cuda::kInvalidValue);
  const Error error = check_ready();
  if (error != cuda::kSuccess) return done(error);
  if (source < 0 || destination < 0 || source >= state.visible_count || destination >= state.visible_count || source == destination)
    return done(cuda::kInvalidDevice);
  *value = attribute == 2;  // cudaDevP2PAttrAccessSupported; no native atomics, as over PCIe
  return cuda::kSuccess;
}

GPUMEM_EXPORT int cudaDeviceGetLimit(size_t *value, int limit) {
  const Error error = check_current();
  if (error != cuda::kSuccess) return done(error);
  return done(get_limit(limit, value) ? cuda::kSuccess : cuda::kInvalidValue);
}
GPUMEM_EXPORT int cudaDeviceSetLimit(int limit, size_t value) {
  const Error error = check_current();
  if (error != cuda::kSuccess) return done(error);
  return done(set_limit(limit, value) ? cuda::kSuccess : cuda::kInvalidValue);
}

GPUMEM_EXPORT int cudaDeviceGetCacheConfig(int *config) {
  if (config == nullptr) return done(cuda::kInvalidValue);
  *config = 0;
  return done(check_current());
}
GPUMEM_EXPORT int cudaDeviceSetCacheConfig(int) { return done(check_current()); }
GPUMEM_EXPORT int cudaDeviceGetSharedMemConfig(int *config) {
  if (config == nullptr) return done(cuda::kInvalidValue);
  *config = 1;  // cudaSharedMemBankSizeFourByte
  return done(check_current());
}
GPUMEM_EXPORT int cudaDeviceSetSharedMemConfig(int) { return done(check_current()); }
GPUMEM_EXPORT int cudaCtxResetPersistingL2Cache() { return done(check_current()); }
GPUMEM_EXPORT int cudaDeviceFlushGPUDirectRDMAWrites(int, int) { return done(check_current()); }
GPUMEM_EXPORT int cudaGetDeviceFlags(unsigned *flags) {
  if (flags == nullptr) return done(cuda::kInvalidValue);
  *flags = 0;
  return done(check_ready());
}
GPUMEM_EXPORT int cudaSetDeviceFlags(unsigned) { return done(check_ready()); }

GPUMEM_EXPORT int cudaProfilerStart() { return done(check_current()); }
GPUMEM_EXPORT int cudaProfilerStop() { return done(check_current()); }
