# SPDX-License-Identifier: Apache-2.0
# Requests that gpumem must not touch go in exactly as they were written.
# shellcheck shell=bash

requested() { job_field "$1" TresPerNode; }

submit --gpumem=2G --gres=gpu:2 --wrap true
like "$(requested "$JOB")" 'gpu:2$' "two GPUs stay two GPUs"
submit --gres=shard:700 --wrap true
is "$SAID" "" "shards asked for by hand: nothing is said"
like "$(requested "$JOB")" 'shard:700$' "and they stay"
submit --gpumem=off --gres=gpu:1 --wrap true
is "$SAID" "" "--gpumem=off: nothing is said"
like "$(requested "$JOB")" 'gpu:1$' "and the GPU stays"
JOB=$(user env GPUMEM=off sbatch --parsable --gres=gpu:1 --wrap true 2>"$WORK/.stderr")
is "$(cat "$WORK/.stderr")" "" "GPUMEM=off in the environment"
like "$(requested "$JOB")" 'gpu:1$' "is respected"
user mkdir -p "$STATE_DIR/home/.config/gpumem"
user touch "$STATE_DIR/home/.config/gpumem/off"
submit --gres=gpu:1 --wrap true
is "$SAID" "" "the file ~/.config/gpumem/off"
like "$(requested "$JOB")" 'gpu:1$' "is respected"
submit --gpumem=1G --gres=gpu:1 --wrap true
like "$(requested "$JOB")" 'shard:1024$' "but what is said for one job counts more"
user rm -r "$STATE_DIR/home/.config/gpumem"
submit --exclusive --gpumem=2G --gres=gpu:1 --wrap true
like "$(requested "$JOB")" 'gpu:1$' "--exclusive keeps its GPU"
submit --gpumem=100G --gres=gpu:1 --wrap true
like "$SAID" 'submitted as it was' "more than a GPU has is told"
like "$(requested "$JOB")" 'gpu:1$' "and asks for the whole GPU"
