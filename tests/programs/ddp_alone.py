# SPDX-License-Identifier: Apache-2.0
# What: DDP: buckets as gradients, static graph, no_sync, SyncBatchNorm, unused parameters, a compression hook, ZeroRedundancyOptimizer; rank 0 of 8 without the others.
# env: RANK=0 WORLD_SIZE=8 LOCAL_RANK=0 MASTER_ADDR=node001 MASTER_PORT=29400
# expect: note "rank 0 of 8 ran without the others"
import _parallel

device = _parallel.begin()
_parallel.ddp(device)
_parallel.end()
