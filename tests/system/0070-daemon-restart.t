# SPDX-License-Identifier: Apache-2.0
# gpumemd killed at any moment: no submission hangs or fails, no acknowledged row is lost, the next start carries on.
# shellcheck shell=bash

submit --gpumem=1G --gres=gpu:1 --wrap 'sleep 8'
acknowledged=$JOB
wait_running "$acknowledged"

# Between request and answer: the script keeps the probe busy.
script slow.sh <<'END'
#!/bin/bash
#SBATCH --gres=gpu:1
python -c "import time; time.sleep(60)"
END
(submit slow.sh; printf '%s\n' "$STATUS" "$SAID" "$JOB" >"$WORK/slow") &
waiting=$!
wait_until 10 "the probe" sh -c "SLURM_CONF=$CLUSTER/etc/slurm.conf GPUMEM_SOCKET=$CLUSTER/run/gpumemd.sock $(installed_prefix)/bin/gpumem status --json | grep -q '\"running\": *1'"
kill -KILL "$(pid_of gpumemd)"
wait $waiting
{ read -r STATUS; read -r SAID; read -r JOB; } <"$WORK/slow"
is "$STATUS" 0 "sbatch succeeds although its daemon was killed"
like "$SAID" 'gpumem: .*submitted as it was' "and says so"
like "$(job_field "$JOB" TresPerNode)" 'gpu:1$' "the request is untouched"
in_cluster scancel "$JOB"

start_gpumemd
is "$(shown "$acknowledged" 'd["limit_mib"]')" 1024 "the decision before is in the history"
is "$(shown "$acknowledged" 'j["outcome"]')" running "the job that it is of still runs"
wait_end "$acknowledged"
outcome_is_known() { [ "$(shown "$acknowledged" 'j["outcome"]')" != running ]; }
wait_until 10 "the outcome" outcome_is_known
is "$(shown "$acknowledged" 'j["outcome"]')" completed "and its end is in the history although the daemon was killed meanwhile"
submit --gpumem=1G --gres=gpu:1 --wrap true
like "$SAID" 'shard:1024' "new decisions are made"

# Killed again and again under load: every submission that was told a limit has its row.
: >"$WORK/told"
for round in 1 2 3; do
  (sleep "0.$((round * 2))"; kill -KILL "$(pid_of gpumemd)" 2>/dev/null) &
  for _ in 1 2 3 4 5 6; do
    submit --gpumem=1G --gres=gpu:1 --wrap true
    is "$STATUS" 0 "round $round: sbatch succeeds"
    if printf '%s' "$SAID" | grep -q shard:1024; then echo "$JOB" >>"$WORK/told"; fi
  done
  wait
  start_gpumemd
done
in_cluster scancel --quiet -p main --state=PENDING
wait_until 60 "the end of the jobs" sh -c "! SLURM_CONF='$CLUSTER/etc/slurm.conf' squeue -h | grep -q ."
tokens=$(user gpumem history --json --limit 0 | grep -o '"limit_bytes": *1073741824' | wc -l)
told=$(wc -l <"$WORK/told")
if [ "$told" -le "$tokens" ]; then pass "no acknowledged row is lost ($told told, $tokens kept)"; else fail "no acknowledged row is lost" "$told told, $tokens kept"; fi

# SIGHUP reads the configuration again, SIGTERM ends in order.
kill -HUP "$(pid_of gpumemd)"
sleep 0.5
check "SIGHUP does not end it" user gpumem status
pid=$(pid_of gpumemd)
kill -TERM "$pid"
check "SIGTERM ends it" wait_until 10 "the end of gpumemd" sh -c "! kill -0 $pid"
