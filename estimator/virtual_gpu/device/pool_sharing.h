// SPDX-License-Identifier: Apache-2.0
// Memory pools of other processes: a pool's descriptor, then blocks of it by a pointer's description. Part of libgpumem_vgpu.so.
//
// As in CUDA: a pool that is to be exported was made with that handle type; an imported one has no memory of its own, takes no
// allocations and costs nothing; a block imported from it is given back by cudaFree or cudaFreeAsync there, and its owner
// pays for it. Contents: Note [Shared contents] in shared.h. All processes have one book; descriptions of another's are refused.
#pragma once

#include "estimator/virtual_gpu/device/pools.h"

namespace gpumem::virtual_gpu {

struct PoolPointer {  // cudaMemPoolPtrExportData
  unsigned char reserved[64];
};

// `type` is cudaMemAllocationHandleType; 1, a file descriptor, is the only one.
Error export_pool(const Pool *pool, int type, int *descriptor);
Error import_pool(int type, int descriptor, void **pool);
Error export_pool_pointer(PoolPointer *shared, void *pointer);
Error import_pool_pointer(const Pool *pool, const PoolPointer &shared, void **pointer);

}  // namespace gpumem::virtual_gpu
