# SPDX-License-Identifier: Apache-2.0
# What every system test uses: assertions, jobs of ordinary users, and the cluster's daemons. Sourced by run for each test.
#
# A test makes at least one assertion; each prints "ok N - what" or "not ok N - what" with the reason. A test that cannot
# run is a failed test: nothing is skipped.
# shellcheck shell=bash

ASSERTIONS=0
OTHER_USER=games   # Debian has it on every machine: a second ordinary user

pass() { ASSERTIONS=$((ASSERTIONS + 1)); printf 'ok %d - %s\n' "$ASSERTIONS" "$1"; }
fail() {
  ASSERTIONS=$((ASSERTIONS + 1))
  printf 'not ok %d - %s\n' "$ASSERTIONS" "$1"
  shift
  [ $# -eq 0 ] || printf '%s\n' "$@" | sed 's/^/#   /'
}

# check WHAT COMMAND …: COMMAND succeeds.
check() {
  local what=$1 output
  shift
  if output=$("$@" 2>&1); then pass "$what"; else fail "$what" "exit status $? of: $*" "$output"; fi
}
is() { if [ "$1" = "$2" ]; then pass "$3"; else fail "$3" "expected: $2" "     got: $1"; fi; }
isnt() { if [ "$1" != "$2" ]; then pass "$3"; else fail "$3" "not expected: $1"; fi; }
like() { if printf '%s\n' "$1" | grep -qE -- "$2"; then pass "$3"; else fail "$3" "expected to match: $2" "got: $1"; fi; }
unlike() { if printf '%s\n' "$1" | grep -qE -- "$2"; then fail "$3" "expected not to match: $2" "got: $1"; else pass "$3"; fi; }
# at_most NUMBER BOUND WHAT
at_most() { if [ "$1" -le "$2" ]; then pass "$3"; else fail "$3" "expected at most $2, got $1"; fi; }

# The users. $WORK is the demo user's scratch directory for this test, and its current directory.
user() { (cd "$WORK" && as_user "$DEMO_USER" "$@"); }
other_user() { (cd / && as_user "$OTHER_USER" "$@"); }

# submit ARGUMENT …: sbatch as the demo user. Sets JOB (empty when nothing was submitted), SAID (standard error), STATUS.
submit() {
  local out
  out=$(user sbatch --parsable "$@" 2>"$WORK/.stderr")
  STATUS=$?
  JOB=${out%%;*}
  SAID=$(cat "$WORK/.stderr")
}

# fixture NAME …: copies of fixtures/NAME in $WORK.
fixture() {
  local name
  for name in "$@"; do install -m 644 -o "$DEMO_USER" "$TESTS/fixtures/$name" "$WORK/"; done
}

# script NAME: standard input as a job script in $WORK, owned by the demo user.
script() {
  cat >"$WORK/$1"
  chown "$DEMO_USER:" "$WORK/$1"
}

job_field() { in_cluster scontrol -o show job "$1" 2>/dev/null | tr ' ' '\n' | sed -n "s/^$2=//p" | head -n 1; }
job_state() { job_field "$1" JobState; }
job_has_ended() { case $(job_state "$1") in COMPLETED | FAILED | CANCELLED | TIMEOUT | OUT_OF_MEMORY | NODE_FAIL) ;; *) return 1 ;; esac; }
wait_end() { wait_until "${2:-60}" "the end of job $1 ($(job_state "$1"))" job_has_ended "$1"; }
job_runs() { [ "$(job_state "$1")" = RUNNING ]; }
wait_running() { wait_until "${2:-30}" "the start of job $1" job_runs "$1"; }
number_of_jobs() { in_cluster squeue -h -t all -o %A | wc -l; }

# shown JOB EXPRESSION: a Python expression over what `gpumem show --json JOB` says of it: d the decision, j the job.
shown() {
  user gpumem show --json "$1" | /usr/bin/python3 -c '
import json, sys
entry = json.load(sys.stdin)["entries"][0]
d, j = entry["decision"] or {}, entry["job"] or {}
print(eval(sys.argv[1]))' "$2" 2>&1
}

# The daemon, and things that stand in its place.
restart_gpumemd() { stop_one gpumemd 10; start_gpumemd; }
# fake_gpumemd MODE: listens in gpumemd's place until stop_fake; see fixtures/fake_gpumemd.py.
fake_gpumemd() {
  /usr/bin/python3 "$TESTS/fixtures/fake_gpumemd.py" "$1" "$CLUSTER/run/gpumemd.sock" &
  FAKE=$!
  wait_until 5 "the fake daemon's socket" test -S "$CLUSTER/run/gpumemd.sock"
}
stop_fake() {
  kill "$FAKE" 2>/dev/null
  wait "$FAKE" 2>/dev/null
  rm -f "$CLUSTER/run/gpumemd.sock"
}

milliseconds() { echo $(($(date +%s%N) / 1000000)); }

begin_test() {
  WORK=$(mktemp -d "$STATE_DIR/home/test.XXXXXX")
  chown "$DEMO_USER:" "$WORK"
  cd "$WORK" || exit 1
}
end_test() {
  in_cluster scancel --quiet -p main 2>/dev/null
  wait_until 30 "the end of the test's jobs" sh -c "! SLURM_CONF='$CLUSTER/etc/slurm.conf' squeue -h | grep -q ."
  start_gpumemd >/dev/null || fail "gpumemd runs at the end of the test"
  cd / || exit 1
  rm -rf "$WORK"
  [ $ASSERTIONS -gt 0 ] || fail "the test makes an assertion"
}
