# SPDX-License-Identifier: Apache-2.0
# What: DDP: buckets as gradients, static graph, no_sync, SyncBatchNorm, unused parameters, a compression hook, ZeroRedundancyOptimizer; two real local ranks.
# ranks: 2
# expect: no-note "without the others|in vain"
# expect: that len([d for d in e["devices"] if d["peak_reserved_bytes"] > 0]) == 2
import _parallel

device = _parallel.begin()
_parallel.ddp(device)
_parallel.end()
