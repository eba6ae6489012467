# SPDX-License-Identifier: Apache-2.0
# The show: six training scripts and one that fits no GPU, with gpumem and without, and what happens when people guess.
# shellcheck shell=bash

EXAMPLES=(image_classifier language_model unet lstm vision_transformer gan)
TOO_LARGE=large_language_model
DEMO_DIR=$STATE_DIR/home/examples

# Prints a command as the user would type it, then runs it as that user in the directory of the examples.
typed() {
  printf '%s$ %s%s\n' "$BOLD" "$*" "$PLAIN"
  (cd "$DEMO_DIR" && as_user "$DEMO_USER" "$@" 2>&1) | sed 's/^/  /'
}

# submit_example NAME [OPTION …]: shows the submission; the job's id is left in LAST_JOB.
submit_example() {
  local name=$1 said
  shift
  printf '%s$ sbatch %s%s\n' "$BOLD" "${*:+$* }$name.sh" "$PLAIN"
  said=$(cd "$DEMO_DIR" && as_user "$DEMO_USER" sbatch "$@" "$name.sh" 2>&1)
  printf '%s\n' "$said" | sed 's/^/  /'
  LAST_JOB=$(printf '%s\n' "$said" | sed -n 's/^Submitted batch job //p')
  [ -n "$LAST_JOB" ] || die "$name.sh was not submitted"
}

copy_examples() {
  rm -rf "$DEMO_DIR"
  install -d -m 755 -o "$DEMO_USER" -g "$DEMO_USER" "$DEMO_DIR"
  install -m 644 -o "$DEMO_USER" -g "$DEMO_USER" "$SOURCE_DIR"/contrib/examples/*.py "$SOURCE_DIR"/contrib/examples/*.sh "$DEMO_DIR/"
  # As unpacked: the time of a file is part of what makes a repeated submission the same.
  local file
  for file in "$SOURCE_DIR"/contrib/examples/*; do
    [ -f "$file" ] && touch -r "$file" "$DEMO_DIR/$(basename "$file")"
  done
}

job_of() { in_cluster scontrol -o show job "$1" 2>/dev/null | tr ' ' '\n' | sed -n "s/^$2=//p" | head -n 1; }
is_active() { case $(job_of "$1" JobState) in PENDING | RUNNING | COMPLETING) ;; *) return 1 ;; esac; }

# What runs and what is in use, once a second until killed: "jobs mib-in-use" lines into FILE.
sample_into() {
  while :; do
    in_cluster "$(installed_prefix)/bin/gpumem" status --json 2>/dev/null | /usr/bin/python3 -c '
import json, sys
devices = json.load(sys.stdin)["devices"]
print(sum(device["jobs"] for device in devices), sum(device["used_bytes"] or 0 for device in devices) >> 20)' 2>/dev/null
    sleep 1
  done >"$1"
}
start_sampling() {
  sample_into "$1" </dev/null &
  SAMPLER=$!
  trap 'kill $SAMPLER 2>/dev/null' EXIT
}
stop_sampling() {
  kill "$SAMPLER" 2>/dev/null
  wait "$SAMPLER" 2>/dev/null
  trap - EXIT
}

# wait_for_jobs JOB …
wait_for_jobs() {
  local limit=$((SECONDS + 600)) job
  for job in "$@"; do
    while is_active "$job"; do
      [ $SECONDS -lt $limit ] || die "the demo's jobs did not end within ten minutes: see 'contrib/bootstrap run -- squeue'"
      sleep 0.5
    done
  done
}

seconds_of() { date -d "$1" +%s 2>/dev/null || echo 0; }

# summary FILE JOB …: what the jobs did, as shell assignments.
summary() {
  local file=$1 job state submitted started ended first=0 last=0 longest=0 failed=0
  shift
  for job in "$@"; do
    state=$(job_of "$job" JobState)
    [ "$state" = COMPLETED ] || failed=$((failed + 1))
    submitted=$(seconds_of "$(job_of "$job" SubmitTime)")
    started=$(seconds_of "$(job_of "$job" StartTime)")
    ended=$(seconds_of "$(job_of "$job" EndTime)")
    [ "$first" = 0 ] && first=$submitted
    [ $((started - submitted)) -gt $longest ] && longest=$((started - submitted))
    [ "$ended" -gt $last ] && last=$ended
  done
  awk -v failed=$failed -v longest=$longest -v span=$((last - first)) '
    $1 > jobs {jobs = $1} $2 > used {used = $2}
    END {printf "AT_ONCE=%d USED_MIB=%d LONGEST_WAIT=%d SPAN=%d FAILED=%d\n", jobs, used, longest, span, failed}' "$file"
}

show_results() {
  local job
  printf '    %-6s %-14s %-12s %s\n' JOB NAME STATE "LAST LINE OF ITS OUTPUT"
  for job in "$@"; do
    printf '    %-6s %-14s %-12s %.100s\n' "$job" "$(job_of "$job" JobName)" "$(job_of "$job" JobState)" \
      "$(grep -v '^$' "$(job_of "$job" StdOut)" 2>/dev/null | tail -n 1)"
  done
}

show_with_gpumem() {
  local name samples=$STATE_DIR/log/with.samples
  step "Six training scripts, submitted as people write them today (#SBATCH --gres=gpu:1)"
  say "The first time each is tried out on a virtual GPU, which takes some seconds; later submissions know the answer."
  start_sampling "$samples"
  WITH_JOBS=()
  for name in "${EXAMPLES[@]}"; do
    submit_example "$name"
    WITH_JOBS+=("$LAST_JOB")
  done
  # Until the last one has taken its memory; where it has to wait for room, the queue shows that.
  wait_until 20 "the first step of the last job" has_memory "$LAST_JOB" 2>/dev/null
  step "The queue: several jobs on one GPU"
  typed squeue -o '%.6i %.14j %.9T %.8M %.20b %R'
  typed gpumem status
  step "A job that fits no GPU here is told so at submit"
  submit_example "$TOO_LARGE"
  in_cluster scancel "$LAST_JOB"
  say "  (taken back: it would wait for a whole GPU and run out of memory there)"
  say ""
  say "Waiting for the six jobs to end …"
  wait_for_jobs "${WITH_JOBS[@]}"
  stop_sampling
  show_results "${WITH_JOBS[@]}"
  eval "$(summary "$samples" "${WITH_JOBS[@]}" | sed 's/\([A-Z_]*\)=/WITH_\1=/g')"
}

show_without_gpumem() {
  local name samples=$STATE_DIR/log/without.samples
  step "The same six without gpumem: one GPU each"
  start_sampling "$samples"
  WITHOUT_JOBS=()
  for name in "${EXAMPLES[@]}"; do
    submit_example "$name" --gpumem=off
    WITHOUT_JOBS+=("$LAST_JOB")
  done
  sleep 3
  typed squeue -o '%.6i %.14j %.9T %.8M %.20b %R'
  say "Waiting for the six jobs to end …"
  wait_for_jobs "${WITHOUT_JOBS[@]}"
  stop_sampling
  eval "$(summary "$samples" "${WITHOUT_JOBS[@]}" | sed 's/\([A-Z_]*\)=/WITHOUT_\1=/g')"
}

show_comparison() {
  step "What it came to, on two GPUs"
  printf '    %-38s %14s %14s\n' '' 'with gpumem' 'without'
  printf '    %-38s %14s %14s\n' 'most jobs running at once' "$WITH_AT_ONCE" "$WITHOUT_AT_ONCE"
  printf '    %-38s %10s GiB %10s GiB\n' 'most GPU memory in use at once' "$(gib "$WITH_USED_MIB")" "$(gib "$WITHOUT_USED_MIB")"
  printf '    %-38s %12s s %12s s\n' 'the last job waited for its GPU' "$WITH_LONGEST_WAIT" "$WITHOUT_LONGEST_WAIT"
  printf '    %-38s %14s %14s\n' 'jobs that failed' "$WITH_FAILED" "$WITHOUT_FAILED"
  say ""
  say "Kernels take no time on a virtual GPU: this shows packing, isolation and out-of-memory behaviour, not speed."
}

gib() { awk -v mib="$1" 'BEGIN {printf "%.1f", mib / 1024}'; }

# Its output says that a step is done.
has_memory() { grep -q 'step' "$(job_of "$1" StdOut)" 2>/dev/null; }

# The limit that gpumem found for an example's job, in MiB.
limit_of() { job_of "$1" TresPerNode | sed 's/.*shard[:=]//'; }

show_contrast() {
  local honest guess1 guess2 shards
  step "The contrast: shards written by hand, with too small a number, and nobody who holds jobs to it"
  say "  (gpumem's node side is told: enforce = false)"
  enforce false
  shards=$(limit_of "${WITH_JOBS[3]}")
  submit_example language_model --gpumem=off --gres=shard:1000; guess1=$LAST_JOB
  submit_example language_model --gpumem=off --gres=shard:1000; guess2=$LAST_JOB
  wait_until 60 "the two jobs' first step" has_memory "$guess1"
  wait_until 60 "the two jobs' first step" has_memory "$guess2"
  submit_example "${EXAMPLES[3]}" --gpumem=off "--gres=shard:$shards"; honest=$LAST_JOB
  say "  The third asked for what it needs. Slurm believed the other two and put it beside them:"
  while is_active "$honest" && ! has_memory "$honest"; do sleep 0.5; done
  show_results "$guess1" "$guess2" "$honest"
  in_cluster scancel "$guess1" "$guess2" "$honest" 2>/dev/null
  enforce true
  wait_until 20 "their end" sh -c "! SLURM_CONF='$CLUSTER/etc/slurm.conf' squeue -h | grep -q ."
  if grep -q OutOfMemoryError "$(job_of "$honest" StdOut)"; then
    say "  It died of out of memory that others took. With gpumem (above), the same script ran beside its neighbours to its end."
  else
    die "the contrast did not show: the third job is $(job_of "$honest" JobState)"
  fi
}

# enforce true|false: the node's setting, in force at once.
enforce() {
  write_gpumem_conf
  sed -i "s/^\[node\]/[node]\nenforce = $1/" "$CLUSTER/etc/gpumem.conf"
  kill -HUP "$(pid_of gpumemd)"
  sleep 0.3
}

command_demo() {
  say "gpumem's demo: builds everything, starts a Slurm of its own with two virtual GPUs, and shows jobs that share them."
  say_needs "9 GiB" "up to 20 minutes the first time, with downloads, and 3 minutes when repeated" " and 6 GiB of memory"
  step "[1/5] Debian packages"
  install_packages || return 1
  step "[2/5] A virtual environment with a CUDA build of PyTorch"
  make_venv || return 1
  step "[3/5] gpumem"
  local prefix
  prefix=$(installed_prefix)
  build_gpumem "$prefix" "$STATE_DIR/build" || return 1
  echo "$prefix" >"$STATE_DIR/prefix"
  install_cudnn "$prefix/var/cache/gpumem" || return 1
  prepare_tracer "$prefix" "$VENV" || return 1
  step "[4/5] The cluster"
  cluster_start || die "the cluster could not be started: see $CLUSTER/log"
  copy_examples
  step "[5/5] The show, as the ordinary user $DEMO_USER"
  show_with_gpumem
  show_without_gpumem
  show_comparison
  show_contrast
  step "gpumem history: estimate and outcome of every job"
  typed gpumem history --limit 20
  say ""
  say "The cluster keeps running: contrib/bootstrap run -- squeue, contrib/bootstrap run -- gpumem show ${WITH_JOBS[0]}, … ; contrib/bootstrap stop ends it."
  [ "$WITH_FAILED" = 0 ] || die "$WITH_FAILED of the six jobs failed: see $DEMO_DIR/*.out"
}
