# SPDX-License-Identifier: Apache-2.0
# What: FSDP1: full shard, shard of gradients, no shard, mixed precision, clipping, a full state dict; rank 0 of 8 without the others.
# needs: torch>=2.1
# env: RANK=0 WORLD_SIZE=8 LOCAL_RANK=0 MASTER_ADDR=node001 MASTER_PORT=29400
# expect: note "rank 0 of 8 ran without the others"
import _parallel

device = _parallel.begin()
_parallel.fsdp1(device)
_parallel.end()
