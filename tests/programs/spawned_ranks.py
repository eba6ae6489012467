# SPDX-License-Identifier: Apache-2.0
# What: two real ranks started by torch.multiprocessing.spawn that meet through a file.
# gpus: 2
# expect: no-note "without the others|in vain"
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from _collectives import tensors


def work(rank, size, path):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method="file://" + path, rank=rank, world_size=size)
    tensors(False, "cuda")
    dist.destroy_process_group()


if __name__ == "__main__":
    size = torch.cuda.device_count()
    assert size == 2
    mp.spawn(work, (size, os.path.join(tempfile.mkdtemp(), "store")), nprocs=size)
    print("ok")
