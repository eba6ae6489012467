# SPDX-License-Identifier: Apache-2.0
# What: a program without an optimizer is ended after some calls of its model, when its peak has been stable.
# early end
# quick
# expect: that e["stopped_early"] and e["steps"] == 0
# expect: note "no optimizer has stepped: ended after [0-9]+ calls"
# expect: that e["peak_allocated_bytes"] >= 2 * 256 << 20
import torch

model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 1024)).cuda().eval()
with torch.inference_mode():
    for number in range(1000000):
        rows = 16384 if number == 100 else 64  # the largest comes late
        model(torch.randn(rows, 1024, device="cuda"))
