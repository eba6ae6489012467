# SPDX-License-Identifier: Apache-2.0
# The allocator model against PyTorch's own on the virtual GPU, event by event; and a limit below the peak, proven by a second run.
# shellcheck shell=bash

for environment in "$VENV" "$OLDER_VENV"; do
  said=$("$SOURCE_DIR/tests/conformance/run" "$environment/bin/python" "$(installed_prefix)" --events 300000 2>&1)
  is "$?" 0 "no difference in 300000 events with ${environment##*/}: $(printf '%s' "$said" | tail -n 1)"
done

install -d -o "$DEMO_USER" "$WORK/allocator"
cat >"$WORK/allocator/varied.py" <<'PROGRAM'
import torch

model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(8)]).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for length in (900, 5000, 1300, 4100, 700, 5900, 2300, 5200):
    optimizer.zero_grad()
    model(torch.randn(length, 2048, device="cuda")).square().mean().backward()
    optimizer.step()
PROGRAM
json=$(user gpumem estimate --prove --gpu "RTX 3060" --json -- "$VENV/bin/python" "$WORK/allocator/varied.py" 2>"$WORK/.stderr")
value() { printf '%s' "$json" | /usr/bin/python3 -c 'import json, sys; e = json.load(sys.stdin); print(eval(sys.argv[1]))' "$1"; }
is "$(value 'e["proof"]["result"]')" proven "a second run passes within the minimum limit"
is "$(value 'e["need_bytes"] < e["peak_reserved_bytes"] + e["context_bytes"]')" True "it is below the peak"
is "$(value 'e["need_bytes"] >= e["peak_allocated_bytes"] + e["context_bytes"]')" True "and not below what was allocated at once"
is "$(value 'e["need_bytes"] == e["proof"]["runs"][-1]["capacity_bytes"]')" True "the need is what was proven"
