# SPDX-License-Identifier: Apache-2.0
# All tests: a fresh build under a private prefix, the unit tests, then the system tests against a real Slurm.
# shellcheck shell=bash

CHECK_DIR=$STATE_DIR/check

# Unit tests as counted by GoogleTest itself: "N passed" and "N failed" over all programs' logs; a program that died
# without a verdict counts as one failure.
count_unit_tests() {
  local log
  UNIT_PASSED=0 UNIT_FAILED=0
  while IFS= read -r log; do
    local passed failed
    passed=$(grep -cE '^\[       OK \]' "$log")
    failed=$(sed -n 's/^ *\([0-9]*\) FAILED TESTS*$/\1/p' "$log" | tail -n 1)
    if grep -q '^\[  SKIPPED \]' "$log"; then
      warn "$(basename "$log" .log) skips tests: counted as failed"
      failed=$((${failed:-0} + $(grep -cE '^\[  SKIPPED \] [A-Za-z_/0-9]+\.[A-Za-z_/0-9]+$' "$log")))
    fi
    case $(sed -n 's/^:test-result: //p' "${log%.log}.trs" 2>/dev/null) in
      PASS*) ;;
      *) failed=${failed:-1} ;;
    esac
    [ "${failed:-0}" -gt 0 ] && { warn "$(basename "$log" .log):"; grep -vE '^\[( +OK| RUN  |---)' "$log" | tail -n 30 >&2; }
    UNIT_PASSED=$((UNIT_PASSED + passed)) UNIT_FAILED=$((UNIT_FAILED + ${failed:-0}))
  done < <(find "$CHECK_DIR/obj" -name '*.log' -path '*/tests/*' ! -name config.log ! -name test-suite.log)
}

command_check() {
  local prefix=$CHECK_DIR/prefix system
  say_needs "16 GiB" "up to 20 minutes (more where PyTorch must be downloaded)" " and 6 GiB of memory"
  step "[1/5] Debian packages"
  install_packages || die "the packages could not be installed"
  step "[2/5] Virtual environments with CUDA builds of PyTorch"
  make_venv && make_older_venv || die "PyTorch could not be installed"
  step "[3/5] gpumem, built afresh"
  rm -rf "$CHECK_DIR"
  mkdir -p "$CHECK_DIR"
  build_gpumem "$prefix" "$CHECK_DIR" || die "gpumem could not be built"
  install_cudnn "$prefix/var/cache/gpumem" || die "cuDNN could not be installed"
  local environment
  for environment in "$VENV" "$OLDER_VENV"; do
    prepare_tracer "$prefix" "$environment" || die "the tracer could not be compiled"
  done
  step "[4/5] Unit tests"
  quietly unit.log "running them" make -C "$CHECK_DIR/obj" -k -j"$(nproc)" check
  local make_status=$?
  count_unit_tests
  # `make check` also runs checks that are no test programs (check-local): a failure that no log shows is one too.
  [ $make_status = 0 ] || [ $UNIT_FAILED -gt 0 ] || UNIT_FAILED=1
  say "    $UNIT_PASSED passed, $UNIT_FAILED failed"
  step "[5/5] System tests"
  "$SOURCE_DIR/tests/system/run" "$prefix" 2>&1 </dev/null | tee "$STATE_DIR/log/system.log"
  system=$(tail -n 1 "$STATE_DIR/log/system.log")
  case $system in
    *" passed, "*" failed") ;;
    *) system="0 passed, 1 failed"; warn "the system tests did not run to their end" ;;
  esac
  local passed failed
  passed=$(($(echo "$system" | cut -d' ' -f1) + UNIT_PASSED))
  failed=$(($(echo "$system" | cut -d' ' -f3) + UNIT_FAILED))
  say ""
  say "$passed passed, $failed failed"
  [ "$failed" = 0 ]
}

# Estimates against peaks measured on real GPUs, with the versions that they were measured with.
command_accuracy() {
  local prefix
  prefix=$(installed_prefix)
  say_needs "9 GiB" "10 minutes, and more where PyTorch must be downloaded; an argument --sample 20 takes fewer runs" " and 8 GiB of memory"
  [ -x "$prefix/bin/gpumem" ] || command_build || return 1
  step "[1/2] PyTorch $OLDER_TORCH_VERSION and a cuDNN that can be asked without a GPU"
  make_older_venv || die "PyTorch could not be installed"
  install_cudnn "$prefix/var/cache/gpumem" "$OLDER_VENV" || die "cuDNN could not be installed"
  prepare_tracer "$prefix" "$OLDER_VENV" || die "the tracer could not be compiled"
  step "[2/2] The runs, one after the other"
  /usr/bin/python3 "$SOURCE_DIR/tests/accuracy/check_accuracy.py" --gpumem "$prefix/bin/gpumem" --python "$OLDER_VENV/bin/python" \
    --data "$SOURCE_DIR/tests/accuracy/data/xmem_runs_dev.tsv" --results "$STATE_DIR/accuracy-results.json" "$@"
}
