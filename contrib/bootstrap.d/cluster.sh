# SPDX-License-Identifier: Apache-2.0
# A one-node Slurm with two shared virtual GPUs: own munged, slurmctld, slurmd and gpumemd, with own configuration,
# state, sockets and ports below $CLUSTER. Nothing outside it is written, except the user that submits.
# shellcheck shell=bash

CLUSTER=$STATE_DIR/cluster
NODE=gpumem1
GPU_NAME="NVIDIA GeForce RTX 3060"
GPU_TYPE=rtx3060
GPUS=2

# Where gpumem is installed: what the last build said, unless a test names its own.
INSTALLED_PREFIX=''
installed_prefix() {
  if [ -n "$INSTALLED_PREFIX" ]; then echo "$INSTALLED_PREFIX"; else cat "$STATE_DIR/prefix" 2>/dev/null || echo /usr/local; fi
}

port_is_free() { ! (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# free_port FROM: the first port from FROM on that nobody listens on.
free_port() {
  local port=$1
  until port_is_free "$port"; do port=$((port + 1)); done
  echo "$port"
}

# GPUs must be character devices for Slurm to export CUDA_VISIBLE_DEVICES; these are /dev/null under other names. Where
# no device may be made (some containers), /dev/null and /dev/zero themselves stand for the two.
gpu_device_files() {
  local index
  for index in 0 1; do
    [ -c "$CLUSTER/dev/gpu$index" ] || mknod -m 666 "$CLUSTER/dev/gpu$index" c 1 3 2>/dev/null || {
      echo "/dev/null /dev/zero"
      return
    }
  done
  echo "$CLUSTER/dev/gpu0 $CLUSTER/dev/gpu1"
}

# Usable memory of the virtual GPU: what gres/shard counts, 1 MiB each. `gpumem gpus` knows it.
usable_mib() {
  "$(installed_prefix)/bin/gpumem" gpus --json 2>/dev/null | /usr/bin/python3 -c '
import json, sys
rows = json.load(sys.stdin)
rows = rows.get("gpus", rows) if isinstance(rows, dict) else rows
print(next(row["usable_bytes"] >> 20 for row in rows if row["name"] == sys.argv[1]))' "$GPU_NAME"
}

write_slurm_conf() {
  local host version
  host=$(hostname -s 2>/dev/null || cat /proc/sys/kernel/hostname)
  version=$(slurmctld -V | sed 's/^slurm[a-z-]* //')
  cat >"$CLUSTER/etc/slurm.conf" <<END
# Written by contrib/bootstrap: one node with virtual GPUs. Overwritten by the next start.
ClusterName=gpumem-demo
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$CLUSTER/run/munge.socket
CredType=cred/munge
SlurmctldPort=$CONTROLLER_PORT
SlurmdPort=$NODE_PORT
SlurmctldPidFile=$CLUSTER/run/slurmctld.pid
SlurmdPidFile=$CLUSTER/run/slurmd.pid
SlurmdSpoolDir=$CLUSTER/spool
StateSaveLocation=$CLUSTER/state
SlurmctldLogFile=$CLUSTER/log/slurmctld.log
SlurmdLogFile=$CLUSTER/log/slurmd.log
SlurmctldParameters=idle_on_node_suspend
PluginDir=$(slurm_plugin_dir)
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
MailProg=/bin/true
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
# Finished jobs stay visible to squeue and scontrol for the show and the tests.
MinJobAge=3600
KillWait=5
SchedulerType=sched/backfill
SchedulerParameters=sched_min_interval=0,bf_interval=1,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
# The node has more CPUs in Slurm's books than the machine: the demo is about GPU memory.
SlurmdParameters=config_overrides
GresTypes=gpu,shard
DefCpuPerGPU=2
DefMemPerGPU=4000
DefMemPerCPU=1000
PlugStackConfig=$CLUSTER/etc/plugstack.conf
NodeName=$NODE NodeHostname=$host NodeAddr=127.0.0.1 CPUs=32 RealMemory=128000 Gres=gpu:$GPU_TYPE:$GPUS,shard:$((GPUS * SHARDS_PER_GPU))
PartitionName=main Nodes=$NODE Default=YES MaxTime=1-00:00:00 DefaultTime=30 State=UP
END
  # Nothing here uses cgroups, but Slurm looks for them: 22.05 has no word for "none", and looks for none when it is told
  # the version (a chroot has none mounted). Newer ones must be told that there are none.
  case $version in
    22.* | 23.02*) echo "CgroupPlugin=cgroup/v1" >"$CLUSTER/etc/cgroup.conf" ;;
    *) echo "CgroupPlugin=disabled" >"$CLUSTER/etc/cgroup.conf" ;;
  esac
  # The Type is what keeps a whole-GPU job off a GPU that is being shared (Slurm 22.05).
  {
    local file
    for file in $(gpu_device_files); do
      echo "NodeName=$NODE Name=gpu Type=$GPU_TYPE File=$file"
    done
    echo "NodeName=$NODE Name=shard Count=$((GPUS * SHARDS_PER_GPU))"
  } >"$CLUSTER/etc/gres.conf"
  echo "optional $(installed_prefix)/lib/slurm/spank_gpumem.so socket=$CLUSTER/run/gpumemd.sock timeout=90" \
    >"$CLUSTER/etc/plugstack.conf"
}

slurm_plugin_dir() {
  local dir
  for dir in /usr/lib/*/slurm-wlm /usr/lib/*/slurm /usr/lib/slurm /usr/lib64/slurm; do
    if [ -e "$dir/select_cons_tres.so" ]; then
      echo "$dir"
      return
    fi
  done
}

write_gpumem_conf() {
  cat >"$CLUSTER/etc/gpumem.conf" <<END
# Written by contrib/bootstrap. Overwritten by the next start.
[daemon]
socket = "$CLUSTER/run/gpumemd.sock"
state_directory = "$CLUSTER/gpumem"
roles = ["home", "submit", "node"]

[slurm]
conf = "$CLUSTER/etc/slurm.conf"
refresh_s = 60

[node]
name = "$NODE"
virtual_gpus = [{gpu = "$GPU_NAME", count = $GPUS}]

[[pool]]
name = "demo"
partitions = ["main"]
gpus = ["$GPU_NAME"]
method = "shard"
mode = "apply"
shards_per_gpu = $SHARDS_PER_GPU
END
}

# Everything below $CLUSTER carries this in its environment; it is how stop finds what a pid file does not name.
in_cluster() { env SLURM_CONF="$CLUSTER/etc/slurm.conf" GPUMEM_SOCKET="$CLUSTER/run/gpumemd.sock" "$@"; }

pid_of() { cat "$CLUSTER/run/$1.pid" 2>/dev/null; }

is_running() {
  local pid
  pid=$(pid_of "$1")
  # The name is compared because a pid may have been given to another process since; a zombie has ended.
  [ -n "$pid" ] && [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = "$1" ] && ! grep -q '^State:.Z' "/proc/$pid/status" 2>/dev/null
}

# launch NAME COMMAND …: in the background, by its own session, its output in log/NAME.out, its pid in run/NAME.pid.
launch() {
  local name=$1
  shift
  # exec: no shell stays behind as its parent, with the caller's pipes open.
  (exec env SLURM_CONF="$CLUSTER/etc/slurm.conf" GPUMEM_SOCKET="$CLUSTER/run/gpumemd.sock" \
    setsid sh -c 'echo $$ >"$1"; shift; exec "$@"' sh "$CLUSTER/run/$name.pid" "$@" >>"$CLUSTER/log/$name.out" 2>&1 </dev/null) &
  disown
  wait_until 5 "the start of $name" test -s "$CLUSTER/run/$name.pid"
}

node_is_ready() { in_cluster sinfo -h -n "$NODE" -o %T | grep -qxE 'idle|mixed|allocated'; }
controller_answers() { in_cluster scontrol ping | grep -q UP; }
daemon_answers() { in_cluster "$(installed_prefix)/bin/gpumem" status --json; }

show_log_end() {
  warn "the end of $1:"
  tail -n 15 "$1" >&2 2>/dev/null
}

start_munged() {
  is_running munged && return 0
  if [ ! -f "$CLUSTER/etc/munge.key" ]; then
    (umask 077 && head -c 1024 /dev/urandom >"$CLUSTER/etc/munge.key")
  fi
  rm -f "$CLUSTER/run/munge.socket"*
  launch munged munged -F --force --num-threads=2 --socket="$CLUSTER/run/munge.socket" --key-file="$CLUSTER/etc/munge.key" \
    --pid-file="$CLUSTER/run/munged.own.pid" --log-file="$CLUSTER/log/munged.log" --seed-file="$CLUSTER/state/munge.seed"
  wait_until 15 "munged's socket" munge -n --socket="$CLUSTER/run/munge.socket" || {
    show_log_end "$CLUSTER/log/munged.out"
    return 1
  }
}

start_slurm() {
  if ! is_running slurmctld; then
    launch slurmctld slurmctld -D -f "$CLUSTER/etc/slurm.conf"
    wait_until 30 "slurmctld's answer" controller_answers || { show_log_end "$CLUSTER/log/slurmctld.log"; return 1; }
  fi
  is_running slurmd || launch slurmd slurmd -D -N "$NODE" -f "$CLUSTER/etc/slurm.conf"
  wait_until 30 "the node's registration" node_is_ready || { show_log_end "$CLUSTER/log/slurmd.log"; return 1; }
}

start_gpumemd() {
  is_running gpumemd && return 0
  launch gpumemd "$(installed_prefix)/sbin/gpumemd" --config "$CLUSTER/etc/gpumem.conf"
  wait_until 15 "gpumemd's answer" daemon_answers || { show_log_end "$CLUSTER/log/gpumemd.out"; return 1; }
}

make_demo_user() {
  if ! id "$DEMO_USER" >/dev/null 2>&1; then
    useradd --system --user-group --shell /bin/bash --home-dir "$STATE_DIR/home" --no-create-home "$DEMO_USER" || return 1
  fi
  install -d -m 750 -o "$DEMO_USER" -g "$DEMO_USER" "$STATE_DIR/home"
}

# Free ports, chosen once: jobs of an earlier start must find the same controller.
choose_ports() {
  if [ -f "$CLUSTER/etc/ports" ]; then
    read -r CONTROLLER_PORT NODE_PORT <"$CLUSTER/etc/ports"
    if is_running slurmctld || { port_is_free "$CONTROLLER_PORT" && port_is_free "$NODE_PORT"; }; then return; fi
  fi
  CONTROLLER_PORT=$(free_port 26817)
  NODE_PORT=$(free_port $((CONTROLLER_PORT + 1)))
  echo "$CONTROLLER_PORT $NODE_PORT" >"$CLUSTER/etc/ports"
}

cluster_start() {
  SHARDS_PER_GPU=$(usable_mib)
  [ -n "$SHARDS_PER_GPU" ] || die "'$(installed_prefix)/bin/gpumem gpus' does not know the $GPU_NAME: is gpumem installed there?"
  install -d "$CLUSTER" "$CLUSTER"/{etc,run,log,state,spool,dev,gpumem} || return 1
  make_demo_user || die "the user $DEMO_USER could not be made"
  choose_ports
  write_slurm_conf
  write_gpumem_conf
  start_munged && start_slurm && start_gpumemd || return 1
  say "    cluster: node $NODE, $GPUS virtual $GPU_NAME, $SHARDS_PER_GPU shards of 1 MiB each; slurmctld on port $CONTROLLER_PORT"
}

# Processes of this cluster that no pid file names: slurmstepd and what jobs have left behind.
stray_pids() {
  local environment pid
  for environment in /proc/[0-9]*/environ; do
    pid=${environment#/proc/}
    pid=${pid%/environ}
    [ "$pid" = $$ ] && continue
    grep -qzxF "SLURM_CONF=$CLUSTER/etc/slurm.conf" "$environment" 2>/dev/null && echo "$pid"
  done
}

stop_one() {
  local name=$1 pid
  is_running "$name" || { rm -f "$CLUSTER/run/$name.pid"; return 0; }
  pid=$(pid_of "$name")
  kill -TERM "$pid" 2>/dev/null
  wait_until "$2" "the end of $name" sh -c "! kill -0 $pid" || kill -KILL "$pid" 2>/dev/null
  rm -f "$CLUSTER/run/$name.pid"
}

cluster_stop() {
  [ -d "$CLUSTER/run" ] || { say "There is no cluster in $CLUSTER."; return 0; }
  if is_running slurmctld && is_running slurmd; then
    in_cluster scancel --quiet -p main 2>/dev/null
    wait_until 20 "the end of all jobs" sh -c "! SLURM_CONF='$CLUSTER/etc/slurm.conf' squeue -h | grep -q ."
  fi
  stop_one slurmd 10
  stop_one gpumemd 10
  stop_one slurmctld 15
  stop_one munged 5
  local pids
  mapfile -t pids < <(stray_pids)
  if [ ${#pids[@]} -gt 0 ]; then
    kill -TERM "${pids[@]}" 2>/dev/null
    sleep 1
    mapfile -t pids < <(stray_pids)
    [ ${#pids[@]} -gt 0 ] && kill -KILL "${pids[@]}" 2>/dev/null
  fi
  say "The cluster in $CLUSTER is stopped."
}

# The demo user's home is this state directory's, whatever directory the user was first made for.
home_of() {
  if [ "$1" = "$DEMO_USER" ]; then echo "$STATE_DIR/home"; else getent passwd "$1" | cut -d: -f6; fi
}

# as_user USER COMMAND …: in USER's own session environment, pointed at the cluster, with PyTorch's environment active.
as_user() {
  local user=$1 home
  shift
  home=$(home_of "$user")
  [ -n "$home" ] || die "there is no user '$user'"
  setpriv --reuid="$user" --regid="$(id -g "$user")" --init-groups \
    env -i HOME="$home" USER="$user" LOGNAME="$user" SHELL=/bin/bash LANG=C.UTF-8 ${TERM:+TERM="$TERM"} \
    SLURM_CONF="$CLUSTER/etc/slurm.conf" GPUMEM_SOCKET="$CLUSTER/run/gpumemd.sock" \
    VIRTUAL_ENV="$VENV" PATH="$VENV/bin:$(installed_prefix)/bin:$PATH" "$@"
}

command_start() {
  [ -x "$(installed_prefix)/sbin/gpumemd" ] || command_build || return 1
  step "Cluster"
  cluster_start || die "the cluster could not be started: see $CLUSTER/log"
}

command_run() {
  local user=$DEMO_USER
  while [ $# -gt 0 ]; do
    case $1 in
      -u) user=${2:?"-u needs a user"}; shift 2 ;;
      --) shift; break ;;
      -*) die "run: '$1' is not understood: contrib/bootstrap run [-u USER] -- COMMAND …" ;;
      *) break ;;
    esac
  done
  [ $# -gt 0 ] || die "run: no COMMAND: contrib/bootstrap run [-u USER] -- COMMAND …"
  is_running slurmctld || die "the cluster does not run: contrib/bootstrap start"
  # Where the user may not write, as sbatch wants to, the command runs in the home directory.
  if ! as_user "$user" test -w . -a -x . 2>/dev/null; then cd "$(home_of "$user")" || exit 1; fi
  as_user "$user" "$@"
}
