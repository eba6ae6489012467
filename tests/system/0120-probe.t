# SPDX-License-Identifier: Apache-2.0
# The main job: a plain sbatch of a PyTorch script is estimated, shares a GPU, is measured, and is in the history.
# shellcheck shell=bash

fixture train.py
script job.sh <<'END'
#!/bin/bash
#SBATCH --job-name=train
#SBATCH --gres=gpu:1
python train.py 2048 40
END
submit job.sh
is "$STATUS" 0 "sbatch succeeds"
like "$SAID" '^sbatch: gpumem: .*needs .*requesting shard:[0-9]+ instead of --gres=gpu:1' "the line says the estimate and what is requested"
check "the probe has left no checkpoint" test ! -e "$WORK/checkpoint.txt"
wait_end "$JOB"
is "$(job_state "$JOB")" COMPLETED "the job runs with the limit"
like "$(cat "$WORK/slurm-$JOB.out")" '^trained 40 steps' "to its end"
check "and leaves its checkpoint" test -e "$WORK/checkpoint.txt"
known() { [ "$(shown "$1" 'j["outcome"]')" = completed ]; }
check "the outcome is in the history" wait_until 10 "the outcome" known "$JOB"
is "$(shown "$JOB" 'd["rule"]')" probe "what decided was the probe"
# On a virtual GPU both come from the same library: the same program must need the same, to the context's accuracy.
is "$(shown "$JOB" '0.9 < j["measured_peak_bytes"] / d["need_bytes"] < 1.1')" True "estimate and measured peak agree"
is "$(shown "$JOB" 'j["virtual"]')" True "marked virtual"

from=$(milliseconds)
submit job.sh
took=$(($(milliseconds) - from))
like "$SAID" 'requesting shard:.*\[probe of ' "a repeated submission has the same answer"
at_most "$took" 1500 "without a new probe ($took ms)"
user touch "$WORK/train.py"
user sed -i 's/Adam(/SGD(/' "$WORK/train.py"
submit job.sh
wait_end "$JOB"
like "$SAID" '\[probe, [0-9.]+ s' "a changed program is probed anew"
