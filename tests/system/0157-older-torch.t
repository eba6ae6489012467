# SPDX-License-Identifier: Apache-2.0
# The same preloaded library under an older PyTorch (CUDA 12), whose own cuDNN cannot plan without a device.
# shellcheck shell=bash

install -d -o "$DEMO_USER" "$WORK/older"
install -m 644 -o "$DEMO_USER" "$SOURCE_DIR"/tests/programs/*.py "$WORK/older/"
estimate() { json=$(user gpumem estimate --gpu "RTX 3060" --json -- "$OLDER_VENV/bin/python" "$@" 2>"$WORK/.stderr"); }
value() { printf '%s' "$json" | /usr/bin/python3 -c 'import json, sys; e = json.load(sys.stdin); print(eval(sys.argv[1]))' "$1"; }

for program in values healthy; do
  estimate "older/$program.py"
  is "$? $(value 'e["status"]')" "0 complete" "$program.py runs to its end"
  is "$(grep -E '^not ok' "$WORK/.stderr")" "" "$program.py: every value is right"
  is "$(value '[n for n in e["notes"] if "tracer" in n]')" "[]" "the tracer was there"
done
like "$(value 'e["torch"]')" "^$OLDER_TORCH_VERSION\+cu12" "it was PyTorch $OLDER_TORCH_VERSION"
like "$(value 'e["cudnn"]')" "^${CUDNN_VERSION%.*} .*in place of the job" "cuDNN ${CUDNN_VERSION%.*} planned in place of its own"
is "$(value 'e["missing_functions"]')" "[]" "no function was missing"
