# SPDX-License-Identifier: Apache-2.0
# Debian packages: what gpumem builds and runs with. Installed only where missing; their services are not started.
# shellcheck shell=bash

PACKAGES=(
  # tools that build
  autoconf automake make gcc g++ pkg-config libc6-dev binutils
  # libraries
  libsqlite3-dev libevent-dev libspdlog-dev libfmt-dev nlohmann-json3-dev libtomlplusplus-dev libcli11-dev
  libgtest-dev libmunge-dev libslurm-dev
  # Slurm of the demo and the tests
  slurm-wlm slurm-wlm-basic-plugins slurmd slurmctld slurm-client munge
  # Python for PyTorch, and for compiling the tracer against it
  python3 python3-venv python3-dev
  # used by the scripts
  ca-certificates unzip procps util-linux iproute2 passwd mandoc
)
# End of PACKAGES

missing_packages() {
  local package
  for package in "${PACKAGES[@]}"; do
    dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || echo "$package"
  done
}

# Debian's packages start their daemons when they are installed. This file forbids it for the time being; one that is
# there already is respected.
POLICY=/usr/sbin/policy-rc.d
forbid_services() {
  [ -e $POLICY ] && return 1
  printf '#!/bin/sh\n# written by gpumem contrib/bootstrap for the time of an installation\nexit 101\n' >$POLICY
  chmod 755 $POLICY
}

install_packages() {
  local missing ours=no status
  mapfile -t missing < <(missing_packages)
  if [ ${#missing[@]} = 0 ]; then
    say "    all ${#PACKAGES[@]} packages are there"
    return 0
  fi
  say "    missing: ${missing[*]}"
  quietly apt-update.log "reading the package lists" apt-get update -q || return 1
  if forbid_services; then
    ours=yes
    trap 'rm -f $POLICY' EXIT
  fi
  quietly apt-install.log "installing ${#missing[@]} packages and what they need" \
    env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
    -o Dpkg::Options::=--force-confold "${missing[@]}"
  status=$?
  if [ $ours = yes ]; then
    rm -f $POLICY
    trap - EXIT
  fi
  return $status
}
