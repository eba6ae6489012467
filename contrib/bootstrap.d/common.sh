# SPDX-License-Identifier: Apache-2.0
# Words and helpers that every piece of contrib/bootstrap uses. Sourced by it as root.
# shellcheck shell=bash

STATE_DIR=${GPUMEM_BOOTSTRAP_DIR:-/var/lib/gpumem-bootstrap}
DEMO_USER=gpumem-demo
# Only what is ours: neither the caller's Slurm settings nor virtual environments may reach what is started here.
unset SLURM_CONF GPUMEM_SOCKET PYTHONPATH PYTHONHOME VIRTUAL_ENV LD_PRELOAD LD_LIBRARY_PATH
export LC_ALL=C.UTF-8
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
umask 022

if [ -t 1 ]; then BOLD=$'\e[1m' DIM=$'\e[2m' PLAIN=$'\e[0m'; else BOLD='' DIM='' PLAIN=''; fi

say() { printf '%s\n' "$*"; }
step() { printf '\n%s==> %s%s %s(at %d:%02d)%s\n' "$BOLD" "$*" "$PLAIN" "$DIM" $((SECONDS / 60)) $((SECONDS % 60)) "$PLAIN"; }
warn() { printf 'bootstrap: %s\n' "$*" >&2; }
die() { warn "$*"; exit 1; }

need_root() {
  [ "$(id -u)" = 0 ] || die "'$1' must run as root: it installs packages and starts Slurm's daemons"
  case $STATE_DIR in
    /*) ;;
    *) die "GPUMEM_BOOTSTRAP_DIR must be an absolute path, not '$STATE_DIR'" ;;
  esac
  # A Unix socket's path has at most 107 bytes.
  [ ${#STATE_DIR} -le 60 ] || die "GPUMEM_BOOTSTRAP_DIR is longer than 60 characters: sockets below it could not be made"
  mkdir -p "$STATE_DIR/log" || die "cannot create $STATE_DIR"
}

# quietly LOG WHAT COMMAND …: runs COMMAND with its output in LOG; prints a dot every few seconds, and the end of LOG
# when it fails.
quietly() {
  local log=$STATE_DIR/log/$1 what=$2 from=$SECONDS ticks=0 status
  shift 2
  printf '    %s ' "$what"
  "$@" >"$log" 2>&1 </dev/null &
  local pid=$!
  while kill -0 "$pid" 2>/dev/null; do
    sleep 0.2
    ticks=$((ticks + 1))
    [ $((ticks % 25)) = 0 ] && printf '.'
  done
  wait "$pid"
  status=$?
  if [ $status = 0 ]; then
    printf ' done (%d s)\n' $((SECONDS - from))
  else
    printf ' FAILED\n'
    tail -n 30 "$log" >&2
    warn "$what: exit status $status; the whole output is in $log"
  fi
  return $status
}

# wait_until SECONDS WHAT COMMAND …: until COMMAND succeeds; fails, and says so, when that takes too long.
wait_until() {
  local limit=$1 what=$2 from=$SECONDS
  shift 2
  until "$@" >/dev/null 2>&1; do
    if [ $((SECONDS - from)) -ge "$limit" ]; then
      warn "$what did not happen within $limit s"
      return 1
    fi
    sleep 0.1
  done
}

free_space_mib() { df -Pm "$1" | awk 'NR == 2 {print $4}'; }
