# SPDX-License-Identifier: Apache-2.0
# xMem's own method: an ordinary script for a GPU really trains three iterations on the CPU.
# shellcheck shell=bash

install -d -o "$DEMO_USER" "$WORK/programs"
install -m 644 -o "$DEMO_USER" "$SOURCE_DIR"/tests/programs/on_the_cpu.py "$WORK/programs/"
json=$(user gpumem estimate --method=xmem --gpu "RTX 3060" --json -- python programs/on_the_cpu.py 2>"$WORK/.stderr")
is "$?" 0 "the program is estimated"
value() { printf '%s' "$json" | /usr/bin/python3 -c 'import json, sys; e = json.load(sys.stdin); print(eval(sys.argv[1]))' "$1"; }
is "$(grep -E '^not ok|Error' "$WORK/.stderr")" "" "it trained on the CPU and was ended"
is "$(value 'e["status"], e["method"], e["confidence"], e["steps"], e["stopped_early"]')" "('complete', 'xmem', 'medium', 3, True)" \
  "three iterations, said to be by xMem's method"
# Convolution 224, norm 16, its statistics 16 and a counter, 81930 and 110 weights: bytes of float32 and one int64.
is "$(value 'e["xmem"]["parameter_bytes"]')" "$(((224 + 16 + 16 + 81930 + 110) * 4 + 8))" "parameters and buffers are there"
is "$(value 'e["xmem"]["gradient_bytes"] >= (224 + 16 + 81930 + 110) * 4')" True "so are the gradients"
is "$(value 'e["xmem"]["optimizer_bytes"]')" "$(((224 + 16 + 81930 + 110) * 4 * 2))" "Adam keeps two of each"
is "$(value 'e["xmem"]["data_bytes"]')" "$((32 * 3 * 32 * 32 * 4 + 32 * 8))" "a batch is put on the device"
is "$(value 'e["need_bytes"] == e["minimum_limit_bytes"] + e["context_bytes"] and e["minimum_limit_bytes"] <= e["peak_reserved_bytes"]')" True \
  "the need is the minimum limit and the context"
like "$(value '"; ".join(e["notes"])')" "by xMem's method" "the notes say what it does not see"
like "$(value '"; ".join(e["notes"])')" "autocast to float16 ran as the CPU's" "and what was done differently on the CPU"
