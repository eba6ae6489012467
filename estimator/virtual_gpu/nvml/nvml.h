// SPDX-License-Identifier: Apache-2.0
// NVML on virtual GPUs (nvml.h of the NVIDIA Management Library API): monitoring, answered from the same book as CUDA.
// Part of libgpumem_vgpu.so; libnvidia-ml.so.1 is a shell around it. Using NVML is not using CUDA: no context is charged.
//
// NVML sees every device of the book, whatever CUDA_VISIBLE_DEVICES says. A handle is the device's number plus a tag.
// What a virtual GPU does not have (temperature, power, clocks now) is "not supported", as on GPUs that lack a sensor.
#pragma once

#include "estimator/virtual_gpu/device/state.h"

namespace gpumem::virtual_gpu::nvml {

// nvmlReturn_t
constexpr int kSuccess = 0;
constexpr int kUninitialized = 1;
constexpr int kInvalidArgument = 2;
constexpr int kNotSupported = 3;
constexpr int kNotFound = 6;
constexpr int kInsufficientSize = 7;
constexpr int kDriverNotLoaded = 9;
constexpr int kVersionMismatch = 25;  // NVML_ERROR_ARGUMENT_VERSION_MISMATCH

using DeviceHandle = void *;  // nvmlDevice_t

// How often nvmlInit ran without its nvmlShutdown.
extern int initialized;

DeviceHandle handle_of(int device);
// The device behind a handle, kUninitialized or kInvalidArgument.
int device_of(DeviceHandle handle, int *device);

// kSuccess with a description, or the error.
int find(DeviceHandle handle, const book::DeviceDescription **description);

// Copies with its NUL, or kInsufficientSize.
int copy_text(char *to, unsigned size, const char *text);

}  // namespace gpumem::virtual_gpu::nvml
