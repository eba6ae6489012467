# SPDX-License-Identifier: Apache-2.0
# What a program reads back from a virtual GPU, and how a probe shortens it: values of small tensors, a healthy training
# loop, epochs with worker processes.
# shellcheck shell=bash

install -d -o "$DEMO_USER" "$WORK/programs"
install -m 644 -o "$DEMO_USER" "$SOURCE_DIR"/tests/programs/*.py "$WORK/programs/"
estimate() { json=$(user gpumem estimate --gpu "RTX 3060" --json -- python "$@" 2>"$WORK/.stderr"); }
value() { printf '%s' "$json" | /usr/bin/python3 -c 'import json, sys; e = json.load(sys.stdin); print(eval(sys.argv[1]))' "$1"; }
said() { grep -E "$1" "$WORK/.stderr"; }

for program in values healthy; do
  estimate "programs/$program.py"
  is "$? $(value 'e["status"]')" "0 complete" "$program.py runs to its end"
  is "$(said '^not ok')" "" "$program.py: every value is right"
  like "$(said 'values, ')" '^[1-9][0-9]+ values, 0 wrong$' "$program.py has looked at its values"
  is "$(value '[n for n in e["notes"] if "tracer" in n]')" "[]" "the tracer was there"
done

for workers in 0 2; do
  estimate programs/epochs.py "$workers"
  is "$? $(value 'e["status"], e["stopped_early"]')" "0 ('complete', True)" "$workers workers: ended once the peak was stable"
  like "$(said '^batches')" '^batches 2000 250$' "$workers workers: loaders keep their length"
  like "$(said '^epoch 0')" 'largest early True batches 8$' "$workers workers: two optimizer steps, the largest batch early"
  like "$(said '^validated')" True "$workers workers: validation was reached"
  is "$(said '^end')" "" "$workers workers: not every epoch was run"
  like "$(value '"; ".join(e["notes"])')" 'shortened to 8 of 2000 batches' "$workers workers: the notes say so"
  check "$workers workers: no checkpoint is left" test ! -e "$WORK/checkpoint.pt"
done
