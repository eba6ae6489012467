# SPDX-License-Identifier: Apache-2.0
# What: collectives, objects, send and receive, groups and gloo, as rank 0 of 16 without the others (torchrun's environment).
# quick
# env: RANK=0 WORLD_SIZE=16 LOCAL_RANK=0 MASTER_ADDR=node001 MASTER_PORT=29400
# expect: note "rank 0 of 16 ran without the others"
# expect: that [(p["rank"], p["world_size"]) for p in e["processes"] if p["devices"]] == [(0, 16)]
# expect: that e["need_bytes"] > e["peak_reserved_bytes"] + e["context_bytes"]
import torch
import torch.distributed as dist

from _collectives import everything

torch.cuda.set_device(0)
dist.init_process_group("nccl")
assert dist.get_world_size() == 16 and dist.get_backend() == "nccl"
everything(alone=True)
dist.destroy_process_group()
