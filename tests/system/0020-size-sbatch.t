# SPDX-License-Identifier: Apache-2.0
# sbatch --gpumem=SIZE: the limit is the user's, the rest of the request keeps its worth.
# shellcheck shell=bash

submit --gpumem=3G --gres=gpu:1 --wrap 'echo "shards $SLURM_SHARDS_ON_NODE devices $CUDA_VISIBLE_DEVICES"; env'
is "$STATUS" 0 "sbatch succeeds"
like "$SAID" '^sbatch: gpumem: .*3.0 GiB.*shard:3072 instead of --gres=gpu:1' "one line says what was requested"
is "$(printf '%s\n' "$SAID" | wc -l)" 1 "and only one"
wait_end "$JOB"
is "$(job_state "$JOB")" COMPLETED "the job runs"
out=$(cat "$WORK/slurm-$JOB.out")
like "$out" '^shards 3072 devices [01]$' "with 3072 shards on one device"
unlike "$out" 'SPANK_OPTION' "the option is not inherited by jobs that it submits"
whole=$(user sbatch --parsable --gpumem=off --gres=gpu:1 --wrap true)
wait_end "$whole"
is "$(job_field "$JOB" NumCPUs)" "$(job_field "$whole" NumCPUs)" "as many CPUs as the whole GPU would have brought"
is "$(job_field "$JOB" TRES | tr , '\n' | grep mem=)" "$(job_field "$whole" TRES | tr , '\n' | grep mem=)" "as much memory"

script in_script.sh <<'END'
#!/bin/bash
#SBATCH --gpus=1
#SBATCH --gpumem=1.5GiB
echo "shards $SLURM_SHARDS_ON_NODE"
srun --gpus=1 sh -c 'echo "step shards $SLURM_SHARDS_ON_NODE"'
END
submit in_script.sh
like "$SAID" 'shard:1536' "--gpus and #SBATCH --gpumem work too"
wait_end "$JOB"
like "$(cat "$WORK/slurm-$JOB.out")" '^step shards 1536$' "a step that asks for a GPU gets the job's shards"

submit --gpus-per-node=1 --gpumem=2G --wrap true
is "$STATUS" 0 "--gpus-per-node"
like "$SAID" 'shard:2048' "is replaced"
user sbatch --parsable --gpumem=1G --gres=gpu:1 --array=1-2 --wrap 'echo "shards $SLURM_SHARDS_ON_NODE"' >"$WORK/array" 2>/dev/null
array=$(cat "$WORK/array")
wait_until 30 "the array's end" sh -c "[ -s $WORK/slurm-${array}_1.out ] && [ -s $WORK/slurm-${array}_2.out ]"
is "$(cat "$WORK/slurm-${array}_1.out" "$WORK/slurm-${array}_2.out" | sort -u)" "shards 1024" "every task of an array has its shards"
