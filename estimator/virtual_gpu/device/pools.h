// SPDX-License-Identifier: Apache-2.0
// Memory pools (cudaMallocAsync, cudaMemPool_t, CUmemoryPool). Part of libgpumem_vgpu.so.
//
// A pool reserves segments of 32 MiB multiples from the device (2 MiB multiples when that does not fit), splits them
// into blocks of 512-byte units, best fit, and merges freed neighbours. At a synchronization, pools give wholly free
// segments back until what they keep is at most their release threshold (0 at first), as the driver does. Work
// completes at once here, so a freed block is free for every stream. A pool of host memory (device -1) is pinned memory that
// costs the device nothing. All pools share one lock. Units: bytes.
#pragma once

#include "estimator/virtual_gpu/device/memory.h"

namespace gpumem::virtual_gpu {

struct Segment;

struct Pool {
  uint32_t kind;
  int device;                // -1: host memory
  Segment *segments;
  uint64_t release_threshold;
  uint64_t reserved, reserved_high, used, used_high;
  uint64_t reuse_flags[3];   // the three cudaMemPoolReuse* attributes, as set
  uint32_t is_default;
  uint32_t imported;         // of another process: no allocations (pool_sharing.h)
  int handle_types;          // as it was made: how it may be exported
};
constexpr int kFileDescriptorHandle = 1;  // cudaMemHandleTypePosixFileDescriptor

Pool *default_pool(int device);
Pool *current_pool(int device);            // cudaDeviceSetMemPool's, else the default
Error set_current_pool(int device, Pool *pool);
Pool *create_pool(int device);             // -1: of host memory
Pool *host_pool();                         // the default one of host memory
Error create_pool_at(const cuda::MemoryPoolProperties &properties, void **pool);
Error destroy_pool(Pool *pool);            // its blocks must have been freed
Pool *find_pool(const void *handle);

Error allocate_in_pool(Pool *pool, size_t bytes, void **pointer);
Error free_in_pool(void *pointer);
// cudaFreeAsync: what cudaMalloc gave is accepted too, and waits for the device.
Error free_queued(void *pointer);
// The pool of a range, nullptr where it is of none; the bytes of a block that a program has there, 0 where none begins.
Pool *pool_of(const Range &range);
size_t block_size(const Range &range, const void *pointer);
// Gives free segments back until at most `keep` bytes are reserved.
void trim_pool(Pool *pool, uint64_t keep);
// At every synchronization.
void trim_all_pools();
Error get_pool_attribute(Pool *pool, int attribute, void *value);
Error set_pool_attribute(Pool *pool, int attribute, const void *value);

}  // namespace gpumem::virtual_gpu
