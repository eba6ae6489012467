# SPDX-License-Identifier: Apache-2.0
# What: one of two local ranks runs out of memory; the estimate says so, and the other rank is not waited for.
# ranks: 2
# options: --capacity 2G
# expect: status out_of_memory
import os

import torch
import torch.distributed as dist

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
x = torch.ones(1, device="cuda")
dist.all_reduce(x)
if rank == 1:
    kept = [torch.empty(1 << 28, device="cuda") for _ in range(3)]
dist.all_reduce(x)
