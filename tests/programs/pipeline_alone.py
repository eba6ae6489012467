# SPDX-License-Identifier: Apache-2.0
# What: torch.distributed.pipelining: GPipe, 1F1B, interleaved; rank 0 of 8 without the others.
# needs: torch>=2.6
# env: RANK=0 WORLD_SIZE=8 LOCAL_RANK=0 MASTER_ADDR=node001 MASTER_PORT=29400
# expect: note "rank 0 of 8 ran without the others"
import _parallel

device = _parallel.begin()
_parallel.pipeline(device)
_parallel.end()
