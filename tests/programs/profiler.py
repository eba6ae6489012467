# SPDX-License-Identifier: Apache-2.0
# What: torch.profiler with CPU and CUDA activities, schedules, memory and trace export; NVTX ranges; cudaProfilerStart.
# quick
import json
import os
import tempfile

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4)).cuda()
optimizer = torch.optim.Adam(model.parameters())
both = [ProfilerActivity.CPU, ProfilerActivity.CUDA]


def step():
    optimizer.zero_grad()
    with record_function("forward"):
        loss = model(torch.rand(8, 64, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()


with tempfile.TemporaryDirectory() as folder:
    with profile(activities=both, profile_memory=True, record_shapes=True, with_stack=True) as one:
        for _ in range(3):
            step()
        torch.cuda.synchronize()
    path = os.path.join(folder, "trace.json")
    one.export_chrome_trace(path)
    with open(path) as file:
        names = {event.get("name") for event in json.load(file)["traceEvents"]}
    assert "forward" in names and "aten::addmm" in names, sorted(names)[:50]
    assert any(row.key == "aten::addmm" and row.count >= 6 for row in one.key_averages())
    assert "aten::addmm" in one.key_averages().table(sort_by="cpu_time_total", row_limit=50)

    traces = []
    with profile(activities=both, schedule=schedule(wait=1, warmup=1, active=2, repeat=2), on_trace_ready=lambda p: traces.append(p.step_num)) as two:
        for _ in range(8):
            step()
            two.step()
    assert traces == [4, 8], traces

torch.cuda.profiler.start()
with torch.cuda.nvtx.range("a range"), torch.autograd.profiler.emit_nvtx():
    step()
torch.cuda.profiler.stop()
print("ok")
