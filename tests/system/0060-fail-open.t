# SPDX-License-Identifier: Apache-2.0
# Whatever is wrong with the daemon, the job is submitted as it was, soon, with one line.
# shellcheck shell=bash

submitted_as_it_was() {
  local what=$1
  is "$STATUS" 0 "$what: sbatch succeeds"
  like "$(job_field "$JOB" TresPerNode)" 'gpu:1$' "$what: the request is untouched"
  like "$SAID" '^sbatch: gpumem: .*submitted as it was' "$what: the user is told"
  is "$(printf '%s\n' "$SAID" | wc -l)" 1 "$what: in one line"
}

stop_one gpumemd 10
submit --gres=gpu:1 --wrap true
submitted_as_it_was "no daemon"
for mode in closes nonsense half huge other-major; do
  fake_gpumemd $mode
  submit --gres=gpu:1 --wrap true
  submitted_as_it_was "a daemon that answers '$mode'"
  stop_fake
done

fake_gpumemd silent
from=$(milliseconds)
submit --gres=gpu:1 --wrap true
submitted_as_it_was "a daemon that is silent"
at_most $(($(milliseconds) - from)) 15000 "a silent daemon is not waited for long"
stop_fake

fake_gpumemd silent
chmod 600 "$CLUSTER/run/gpumemd.sock"
submit --gres=gpu:1 --wrap true
submitted_as_it_was "a socket that is not accessible"
stop_fake

: >"$CLUSTER/run/gpumemd.sock"
submit --gres=gpu:1 --wrap true
submitted_as_it_was "a file where the socket should be"
rm -f "$CLUSTER/run/gpumemd.sock"

# A job that was decided runs on when the node's daemon has gone: without its meter, but it runs.
restart_gpumemd
submit --gpumem=1G --gres=gpu:1 --wrap 'sleep 1; echo "shards $SLURM_SHARDS_ON_NODE"'
stop_one gpumemd 10
wait_end "$JOB"
is "$(job_state "$JOB") $(cat "$WORK/slurm-$JOB.out")" "COMPLETED shards 1024" "a job whose node has no daemon runs"
submit --gpumem=1G --gres=gpu:1 --wrap true
restart_gpumemd
check "after a restart decisions are made again" user sbatch --gpumem=1G --gres=gpu:1 --wrap true
