# SPDX-License-Identifier: Apache-2.0
# What: torch.distributed.pipelining: GPipe, 1F1B, interleaved; two real local ranks.
# needs: torch>=2.6
# ranks: 2
# expect: no-note "without the others|in vain"
# expect: that len([d for d in e["devices"] if d["peak_reserved_bytes"] > 0]) == 2
import _parallel

device = _parallel.begin()
_parallel.pipeline(device)
_parallel.end()
