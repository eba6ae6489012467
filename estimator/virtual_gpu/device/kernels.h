// SPDX-License-Identifier: Apache-2.0
// What is known of device code: which modules and functions programs registered, which code a device would take.
// Part of libgpumem_vgpu.so. Registration happens while libraries load, also in processes that never use CUDA: it only
// writes two words a function into a table of mapped pages.
#pragma once

#include "estimator/virtual_gpu/device/state.h"

namespace gpumem::virtual_gpu {

void **register_module(void *wrapper);
void unregister_module(void **module);
void register_function(void **module, const void *host, const char *name);
const char *function_name(const void *host);  // nullptr when unknown

void register_variable(const void *host, size_t bytes);
// Device memory of a __device__ variable (part of the module, so of the context: not charged); nullptr when unknown.
void *variable_memory(const void *host, int device, size_t *bytes);

// The code that the device would run: machine code of the newest version up to the device's within its major version,
// else the newest PTX, compiled for the device. Libraries (CUB) choose their policies, and so their temporary memory, by it.
struct CodeVersion {
  int ptx, binary;  // 86: 8.6
};
CodeVersion code_version(const void *host, const book::DeviceDescription &facts);
// The same for an image given to the driver (cubin, PTX text or fat binary).
CodeVersion image_version(const void *image, const book::DeviceDescription &facts);
// Of one in a file, which may be cut short.
CodeVersion file_version(int descriptor, const book::DeviceDescription &facts);

// Resident blocks by threads, blocks and shared memory; registers as for 32 a thread.
int blocks_per_sm(const book::DeviceDescription &facts, int block_size, size_t shared_bytes);

}  // namespace gpumem::virtual_gpu
