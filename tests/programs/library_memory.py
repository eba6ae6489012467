# SPDX-License-Identifier: Apache-2.0
# What: memory that is taken past PyTorch's allocator counts when it is there: little beside the cache's peak, and more than that peak later.
# expect: that e["peak_reserved_bytes"] < 200 * MiB
# expect: that 200 * MiB <= e["minimum_limit_bytes"] < 230 * MiB
# expect: that e["need_bytes"] - e["context_bytes"] < 230 * MiB
# expect: no-note "when libraries took device memory is not known"
import ctypes

import torch

runtime = ctypes.CDLL(None)  # the process's own cudaMalloc, whatever generation


def take(mib):
    pointer = ctypes.c_void_p()
    assert runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(mib << 20)) == 0
    return pointer


early = take(20)
for mib in (60, 100):  # the cache keeps the first beside the second
    block = torch.empty(mib << 20, dtype=torch.uint8, device="cuda")
    del block
assert torch.cuda.max_memory_reserved() == 160 << 20
assert runtime.cudaFree(early) == 0
torch.cuda.empty_cache()
late = take(200)
free, total = torch.cuda.mem_get_info()
assert total - free >= 200 << 20
