// SPDX-License-Identifier: Apache-2.0
// A weak answer for every function of NVML that the other files do not define. Part of libgpumem_vgpu.so.
//
// "Not supported" is what NVML itself says of sensors and switches that a GPU lacks, and monitoring programs expect it:
// it is reported as missing only where it would change what a training program does, which no monitoring function can.
#include "estimator/virtual_gpu/nvml/nvml.h"

using namespace gpumem::virtual_gpu::nvml;

#define F(name) \
  GPUMEM_EXPORT_WEAK int name() { return initialized == 0 ? kUninitialized : kNotSupported; }
#include "estimator/cuda_interface/nvml_functions.def"
#undef F
