// SPDX-License-Identifier: Apache-2.0
// A device's facts in the forms that CUDA's interfaces ask for: properties, attributes, limits. Part of libgpumem_vgpu.so.
// What the book does not know is answered with 0, as CUDA does for what a device lacks. Constants that are the same on
// every device since compute capability 5.0 are from the CUDA C++ Programming Guide, table of technical specifications.
#pragma once

#include "estimator/virtual_gpu/device/state.h"

namespace gpumem::virtual_gpu {

// cudaDeviceProp of a CUDA generation (11, 12, 13); false when there is no such device.
bool fill_properties(void *properties, int device, int generation);
// cudaDeviceAttr or CUdevice_attribute; false when the number means nothing.
bool device_attribute(const book::DeviceDescription &facts, int device, int attribute, int *value);
// "GPU-0011…" as 16 bytes.
void uuid_bytes(const book::DeviceDescription &facts, unsigned char *bytes);
void bus_numbers(const book::DeviceDescription &facts, unsigned *domain, unsigned *bus, unsigned *device);
// Whether boards of that name have NVLink to a switch: SXM and superchip boards.
bool has_nvlink(const char *name);
// Whether two texts name the same PCI device, whatever the width of the domain; "bus:device.function" is of domain 0.
bool same_bus_id(const char *a, const char *b);
// cudaLimit and CUlimit; values are kept for the process.
bool get_limit(int limit, size_t *value);
bool set_limit(int limit, size_t value);

}  // namespace gpumem::virtual_gpu
