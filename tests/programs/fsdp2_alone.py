# SPDX-License-Identifier: Apache-2.0
# What: FSDP2: built on meta, materialised in shards, mixed precision, clipping, a full state dict, values of shards; rank 0 of 8 without the others.
# needs: torch>=2.4
# env: RANK=0 WORLD_SIZE=8 LOCAL_RANK=0 MASTER_ADDR=node001 MASTER_PORT=29400
# expect: note "rank 0 of 8 ran without the others"
import _parallel

device = _parallel.begin()
_parallel.fsdp2(device)
# What the others would have sent is made up from our own.
_parallel.fsdp2_values(device, lambda rank, world: [1.0, 2.0] * world)
_parallel.end()
