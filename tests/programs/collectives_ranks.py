# SPDX-License-Identifier: Apache-2.0
# What: collectives, objects, send and receive, groups and gloo between two real local ranks.
# quick
# ranks: 2
# expect: no-note "without the others|in vain"
# expect: that sorted((p["rank"], p["world_size"], p["devices"][0]["device"]) for p in e["processes"] if p["devices"]) == [(0, 2, 0), (1, 2, 1)]
# expect: that len([d for d in e["devices"] if d["peak_reserved_bytes"] > 0]) == 2
import os

import torch
import torch.distributed as dist

from _collectives import everything

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
everything(alone=False)
dist.destroy_process_group()
