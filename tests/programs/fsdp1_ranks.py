# SPDX-License-Identifier: Apache-2.0
# What: FSDP1: full shard, shard of gradients, no shard, mixed precision, clipping, a full state dict; two real local ranks.
# needs: torch>=2.1
# ranks: 2
# expect: no-note "without the others|in vain"
# expect: that len([d for d in e["devices"] if d["peak_reserved_bytes"] > 0]) == 2
import _parallel

device = _parallel.begin()
_parallel.fsdp1(device)
_parallel.end()
