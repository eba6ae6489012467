# SPDX-License-Identifier: Apache-2.0
# gpumem explain: where the peak is, from the record of an estimate or of a job's decision; PyTorch's own snapshot; smaller batches.
# shellcheck shell=bash

fixture blocks.py
value() { printf '%s' "$json" | /usr/bin/python3 -c 'import json, sys
MiB = 1 << 20
e = json.load(sys.stdin)
d = e["processes"][0]["devices"][0] if "processes" in e and "record" in e and "steps" not in e else None
parts = {p["kind"]: p["bytes"] for p in d["parts"]} if d else None
print(eval(sys.argv[1]))' "$1"; }

user gpumem estimate --gpu "RTX 3060" --record kept --snapshot history.pickle -- python blocks.py >/dev/null 2>&1
is $? 0 "an estimate keeps its record where it is told to"
json=$(user gpumem explain --json kept)
is "$?" 0 "which can be explained"
is "$(value 'parts["parameters"] // MiB')" 32 "8 layers of 1024 x 1024 floats are 32 MiB of parameters"
is "$(value 'parts["optimizer state"] // MiB')" 64 "Adam has two of each"
is "$(value 'd["peak"]["allocated_bytes"] + parts["cache"] == sum(parts.values()) == d["peak"]["reserved_bytes"]')" True "every byte has a kind"
is "$(value 'parts["activations"] // (16 * MiB) >= 8')" True "each layer keeps its output of 16 MiB"
like "$(value '[a["name"] for a in d["activations"]]')" 'layers\.7 \(Block\)' "activations are those of their modules"
is "$(value '[c["kind"] for c in d["candidates"]][:1]')" "['checkpointing']" "checkpointing the layers would save the most"
is "$(value 'd["what_if"][0]["minimum_limit_bytes"] <= d["peak_reserved_bytes"] == d["what_if"][0]["peak_reserved_bytes"]')" True "the allocator's model comes to the recorded peak"
is "$(value '[w["setting"] for w in d["what_if"]][1]')" "expandable_segments:True" "and says what expandable segments would do"
like "$(user gpumem explain kept)" '^  parameters +32\.[0-9] MiB' "the same for people"

is "$("$VENV/bin/python" - "$WORK/history.pickle" <<'END'
import pickle, sys
snapshot = pickle.load(open(sys.argv[1], "rb"))
events = snapshot["device_traces"][0]
print(len(snapshot["segments"]) > 0, any(f["filename"].endswith("blocks.py") for e in events for f in e["frames"]))
END
)" "True True" "the snapshot is PyTorch's, with the program's own lines in it"

whole=$(value 'e["estimate"]["peak_allocated_bytes"]')
json=$(user gpumem estimate --gpu "RTX 3060" --json --batch-percent 50 -- python blocks.py 2>/dev/null)
like "$(value 'e["notes"]')" 'batches were cut to 2048 of 4096' "half the batch: the notes say so"
is "$(value "e['peak_allocated_bytes'] < 0.75 * $whole")" True "and it needs less"
json=$(user gpumem explain --json)
is "$(value 'e["estimate"]["peak_allocated_bytes"] < 0.75 * '"$whole")" True "without a name the newest estimate is explained"

script job.sh <<'END'
#!/bin/bash
#SBATCH --gres=gpu:1
python blocks.py
END
submit job.sh
wait_end "$JOB"
known() { [ -n "$(shown "$1" 'j["outcome"]')" ]; }
wait_until 10 "the job in the history" known "$JOB"
json=$(user gpumem explain --json "$JOB")
is "$? $(value 'parts["parameters"] // MiB')" "0 32" "a job's decision can be explained by its number"
user gpumem explain no-such-directory/record >/dev/null 2>"$WORK/.stderr"
is "$?" 1 "what is no record is refused"
like "$(cat "$WORK/.stderr")" 'no-such-directory/record' "by name"
