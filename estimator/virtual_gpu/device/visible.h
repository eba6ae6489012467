// SPDX-License-Identifier: Apache-2.0
// CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER as CUDA reads them [CUDA C++ Programming Guide, Environment Variables].
// Part of libgpumem_vgpu.so; pure functions of the book and two strings.
#pragma once

#include "estimator/book/book.h"

namespace gpumem::virtual_gpu {

// Writes the book's device numbers that the program sees, in its order, and returns how many.
// `list`: nullptr for all; indices, "GPU-…" or "MIG-…" prefixes that name one device; the first invalid entry ends the
// list; a device named twice means no devices. `order`: "PCI_BUS_ID", else the fastest first. A process sees at most
// one MIG instance and then nothing else.
int visible_devices(const book::Book &book, const char *list, const char *order, int *devices);

}  // namespace gpumem::virtual_gpu
