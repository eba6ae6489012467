# SPDX-License-Identifier: Apache-2.0
# What: tensor parallel through DTensor: column and row, sequence, redistribution; two real local ranks.
# needs: torch>=2.5
# ranks: 2
# expect: no-note "without the others|in vain"
# expect: that len([d for d in e["devices"] if d["peak_reserved_bytes"] > 0]) == 2
import _parallel

device = _parallel.begin()
_parallel.tensor_parallel(device)
_parallel.end()
