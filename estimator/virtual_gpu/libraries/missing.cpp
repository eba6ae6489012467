// SPDX-License-Identifier: Apache-2.0
// One weak definition for every public name of NVIDIA's libraries (names/*.def); runs in the job's processes.
// A strong definition elsewhere in this room replaces it. COMPUTES: counted as a launch, success. ACCEPTS: success. OTHER: reported.
#include "estimator/virtual_gpu/libraries/library.h"

using namespace gpumem::virtual_gpu;
using namespace gpumem::virtual_gpu::libraries;

// The results are words that all callers read as int (or a two-word struct, cuFile's). Arguments are never looked at.
#define OTHER(name) \
  GPUMEM_EXPORT_WEAK long name() { return missing(#name, STATUS); }
#define COMPUTES(name)             \
  GPUMEM_EXPORT_WEAK long name() { \
    count_launch(nullptr);         \
    return 0;                      \
  }

#define ACCEPTS(name) \
  GPUMEM_EXPORT_WEAK long name() { return 0; }

#define STATUS kCublasNotSupported
#include "estimator/virtual_gpu/libraries/names/cublas.def"
#include "estimator/virtual_gpu/libraries/names/cublaslt.def"
#undef STATUS
#define STATUS kCudnnNotSupported
#include "estimator/virtual_gpu/libraries/names/cudnn.def"
#undef STATUS
#define STATUS kCufftNotSupported
#include "estimator/virtual_gpu/libraries/names/cufft.def"
#undef STATUS
#define STATUS kCusolverNotSupported
#include "estimator/virtual_gpu/libraries/names/cusolver.def"
#include "estimator/virtual_gpu/libraries/names/cusolvermg.def"
#undef STATUS
#define STATUS kCusparseNotSupported
#include "estimator/virtual_gpu/libraries/names/cusparse.def"
#include "estimator/virtual_gpu/libraries/names/cusparselt.def"
#undef STATUS
#define STATUS kCurandNotSupported
#include "estimator/virtual_gpu/libraries/names/curand.def"
#undef STATUS
#define STATUS kNcclNotSupported
#include "estimator/virtual_gpu/libraries/names/nccl.def"
#undef STATUS
#define STATUS kCuptiNotSupported
#include "estimator/virtual_gpu/libraries/names/cupti.def"
#undef STATUS
#define STATUS kCufileNotSupported
#include "estimator/virtual_gpu/libraries/names/cufile.def"
