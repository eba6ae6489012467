# SPDX-License-Identifier: Apache-2.0
# What: rank 0 of 8 as Slurm's variables say it, by a TCP address, a device bound at once and both backends; a store made by hand.
# env: SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_LOCALID=0
# expect: note "rank 0 of 8 ran without the others"
import os

import torch
import torch.distributed as dist

from _collectives import everything

rank, size = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
bound = {} if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 3) else {"device_id": torch.device("cuda", 0)}
dist.init_process_group(None if bound else "cpu:gloo,cuda:nccl", init_method="tcp://node001:23456", rank=rank, world_size=size, **bound)
everything(alone=True)
dist.destroy_process_group()

store = dist.TCPStore("node001", 23457, size, rank == 0)
store.set("rank0", "here")
assert store.get("rank0") == b"here" and store.get("rank3") == b"here"
store.wait(["anything that another rank would set"])
assert store.add("arrived", 1) == size
dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
x = torch.ones(3)
dist.all_reduce(x)
assert x.tolist() == [8.0] * 3
torch.ones(1, device="cuda")
dist.destroy_process_group()
