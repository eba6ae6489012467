# SPDX-License-Identifier: Apache-2.0
# Builds gpumem with Autotools, out of a copy of the source tree (which may be read-only), and installs it.
# shellcheck shell=bash

# The files of the source tree: what git tracks or would, or everything where there is no git.
source_files() {
  if command -v git >/dev/null && git -c safe.directory='*' -C "$SOURCE_DIR" rev-parse --git-dir >/dev/null 2>&1; then
    git -c safe.directory='*' -C "$SOURCE_DIR" ls-files -z --cached --others --exclude-standard
  else
    (cd "$SOURCE_DIR" && find . -name .git -prune -o -name autom4te.cache -prune -o -name __pycache__ -prune -o -type f -printf '%P\0')
  fi
}

# sync_sources DIR: makes DIR hold the source tree's files with their times, so that make rebuilds what has changed.
sync_sources() {
  local copy=$1 list=$1.files
  mkdir -p "$copy"
  if [ "$(cat "$copy.origin" 2>/dev/null)" != "$SOURCE_DIR" ]; then
    rm -rf "$copy" "$list" && mkdir -p "$copy"
    echo "$SOURCE_DIR" >"$copy.origin"
  fi
  # A file that git still lists may have been deleted from the tree.
  source_files | (cd "$SOURCE_DIR" && while IFS= read -r -d '' file; do [ -f "$file" ] && printf '%s\0' "$file"; done) | sort -z >"$list.new"
  if [ -f "$list" ]; then
    comm -z -23 "$list" "$list.new" | (cd "$copy" && xargs -0 -r rm -f --)
  fi
  tar -C "$SOURCE_DIR" --null -T "$list.new" -cf - | tar -C "$copy" --no-same-owner -xf - || return 1
  mv "$list.new" "$list"
}

# build_gpumem PREFIX BUILD_DIR
build_gpumem() {
  local prefix=$1 build=$2
  sync_sources "$build/src" || die "cannot copy $SOURCE_DIR to $build/src"
  if [ ! -x "$build/src/configure" ] || [ "$build/src/configure.ac" -nt "$build/src/configure" ]; then
    quietly autoreconf.log "preparing configure" sh -c "cd '$build/src' && autoreconf -fi" || return 1
  fi
  mkdir -p "$build/obj"
  if [ "$(cat "$build/obj/.prefix" 2>/dev/null)" != "$prefix" ] || [ ! -f "$build/obj/config.status" ]; then
    rm -rf "$build/obj" && mkdir -p "$build/obj"
    quietly configure.log "configuring for $prefix" \
      sh -c "cd '$build/obj' && '$build/src/configure' --prefix='$prefix'" || return 1
    echo "$prefix" >"$build/obj/.prefix"
  fi
  quietly make.log "compiling with $(nproc) cores" make -C "$build/obj" -j"$(nproc)" || return 1
  quietly install.log "installing under $prefix" make -C "$build/obj" install || return 1
}

say_needs() {
  say "It needs root, about $1 of disk under $STATE_DIR$3. On two cores it takes $2."
  local free
  free=$(free_space_mib "$STATE_DIR")
  say "Free there: $((free / 1024)) GiB. Logs go to $STATE_DIR/log."
}

command_build() {
  local prefix=${1:-/usr/local}
  case $prefix in /*) ;; *) die "PREFIX must be an absolute path, not '$prefix'" ;; esac
  say_needs "1 GiB (and 300 MiB for Debian packages)" "3 to 8 minutes" ""
  step "Debian packages"
  install_packages || return 1
  step "gpumem"
  build_gpumem "$prefix" "$STATE_DIR/build" || return 1
  echo "$prefix" >"$STATE_DIR/prefix"
  say ""
  say "gpumem is installed: $prefix/bin/gpumem. Next: contrib/bootstrap demo, or the section for administrators in README.md."
}
