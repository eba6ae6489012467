# SPDX-License-Identifier: Apache-2.0
# Two jobs share a device, one that does not fit beside them waits, whole-GPU jobs never share.
# shellcheck shell=bash

fixture hold.py
# 8000 MiB on each device leave no room for a third of that size, but for small ones.
submit --gpumem=8000M --gres=gpu:1 --wrap 'python hold.py 4000 25'; big1=$JOB
submit --gpumem=8000M --gres=gpu:1 --wrap 'python hold.py 4000 25'; big2=$JOB
submit --gpumem=2000M --gres=gpu:1 --wrap 'python hold.py 1000 20; echo "device $SLURM_JOB_GPUS"'; small=$JOB
submit --gpumem=8000M --gres=gpu:1 --wrap 'echo "device $SLURM_JOB_GPUS"'; waits=$JOB
submit --gpumem=off --gres=gpu:1 --wrap 'echo "device $SLURM_JOB_GPUS"'; whole=$JOB
wait_running "$big1" && wait_running "$big2" && wait_running "$small"
pass "two large jobs and a small one run at once on two devices"
is "$(job_state "$waits")" PENDING "the one that fits beside none of them waits"
is "$(job_state "$whole")" PENDING "so does one that wants a whole GPU"
holding() { grep -q holding "$WORK/slurm-$1.out"; }
check "the small one has its memory" wait_until 30 "its memory" holding "$small"
status=$(user gpumem status --json)
is "$(printf '%s' "$status" | /usr/bin/python3 -c '
import json, sys
print(sorted(device["jobs"] for device in json.load(sys.stdin)["devices"]))')" "[1, 2]" "gpumem status shows which jobs share"
for job in "$big1" "$big2" "$small"; do wait_end "$job"; done
is "$(job_state "$big1") $(job_state "$big2") $(job_state "$small")" "COMPLETED COMPLETED COMPLETED" "none of them is out of memory"
wait_end "$waits" && wait_end "$whole"
is "$(job_state "$waits") $(job_state "$whole")" "COMPLETED COMPLETED" "those that waited ran afterwards"
