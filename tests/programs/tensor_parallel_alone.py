# SPDX-License-Identifier: Apache-2.0
# What: tensor parallel through DTensor: column and row, sequence, redistribution; rank 0 of 8 without the others.
# needs: torch>=2.5
# env: RANK=0 WORLD_SIZE=8 LOCAL_RANK=0 MASTER_ADDR=node001 MASTER_PORT=29400
# expect: note "rank 0 of 8 ran without the others"
import _parallel

device = _parallel.begin()
_parallel.tensor_parallel(device)
_parallel.mixed_mesh(device)
_parallel.end()
