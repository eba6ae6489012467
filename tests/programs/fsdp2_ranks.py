# SPDX-License-Identifier: Apache-2.0
# What: FSDP2: built on meta, materialised in shards, mixed precision, clipping, a full state dict, values of shards; two real local ranks.
# needs: torch>=2.4
# ranks: 2
# expect: no-note "without the others|in vain"
# expect: that len([d for d in e["devices"] if d["peak_reserved_bytes"] > 0]) == 2
import _parallel

device = _parallel.begin()
_parallel.fsdp2(device)
_parallel.fsdp2_values(device, lambda rank, world: [float(n) for n in range(1, 2 * world + 1)])
_parallel.end()
