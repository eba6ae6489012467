# SPDX-License-Identifier: Apache-2.0
# gpumem estimate, as an ordinary user, without the daemon: statuses, exit statuses, JSON alone on standard output.
# shellcheck shell=bash

fixture train.py hold.py
stop_one gpumemd 10
estimate() { user gpumem estimate --gpu "RTX 3060" "$@" 2>"$WORK/.stderr"; }
value() { printf '%s' "$json" | /usr/bin/python3 -c 'import json, sys; e = json.load(sys.stdin); print(eval(sys.argv[1]))' "$1"; }

json=$(estimate --json -- python train.py 1024 30)
is $? 0 "a complete estimate exits with 0"
is "$(value 'e["status"]')" complete "and says so"
is "$(value 'e["need_bytes"] >= e["peak_reserved_bytes"] + e["context_bytes"] > 0')" True "its need has the context in it"
is "$(value 'e["gpu"]')" "NVIDIA GeForce RTX 3060" "a part of the GPU's name is enough"
like "$(value 'e["torch"]')" '^2\.11\.0' "it names the torch"
check "no checkpoint is left" test ! -e "$WORK/checkpoint.txt"
like "$(estimate -- python train.py 1024 30)" 'GiB|MiB' "without --json a table"
json=$(estimate --json -- python -c 'import os, torch
torch.ones(1).cuda()
for place in ".", os.path.expanduser("~"), "/tmp", "/var/tmp":
    torch.save(torch.ones(4), os.path.join(place, "gpumem-test.pt"))')
is "$? $(value 'e["status"]')" "0 complete" "a program may write where its user may"
is "$(ls "$WORK/gpumem-test.pt" "$STATE_DIR/home/gpumem-test.pt" /tmp/gpumem-test.pt /var/tmp/gpumem-test.pt 2>/dev/null)" "" "and nothing of it remains"
json=$(estimate --json -- python hold.py 14000 0)
is "$? $(value 'e["status"]')" "3 out_of_memory" "out of memory on this GPU"
json=$(estimate --json --capacity 2GiB -- python hold.py 3000 0)
is "$? $(value 'e["status"]')" "3 out_of_memory" "or in a smaller capacity"
json=$(estimate --json -- python -c 'import torch; torch.ones(1).cuda(); raise SystemExit(7)')
is "$? $(value 'e["status"], e["program"]["exit_status"]')" "4 ('failed', 7)" "a program that fails"
json=$(estimate --json -- sleep 0.1)
is "$? $(value 'e["status"]')" "5 unsupported" "a program without CUDA"
json=$(estimate --json --timeout 6 -- python -c 'import time, torch; torch.ones(1).cuda(); time.sleep(60)')
is "$? $(value 'e["status"]')" "124 timeout" "a program without end"
estimate --gpu "no such GPU" -- true >/dev/null
is $? 2 "a GPU that nobody knows is a usage error"
