# SPDX-License-Identifier: Apache-2.0
# What: what programs ask the allocator: statistics, summary, snapshot, history, mem_get_info, peaks reset, fraction, properties.
# quick
import os
import pickle
import tempfile

import torch

device = "cuda"
MIB = 1 << 20
free, total = torch.cuda.mem_get_info()
properties = torch.cuda.get_device_properties(0)
assert total == properties.total_memory and 0 < free < total
assert properties.name == torch.cuda.get_device_name() == "NVIDIA GeForce RTX 3060" and properties.major == 8
assert properties.multi_processor_count == 28
x = torch.ones(64 * MIB // 4, device=device)
assert torch.cuda.memory_allocated() == 64 * MIB == torch.cuda.memory_stats()["allocated_bytes.all.current"]
assert torch.cuda.memory_reserved() == 64 * MIB
assert free - torch.cuda.mem_get_info()[0] == 64 * MIB
y = x + 1
del y
assert torch.cuda.max_memory_allocated() == 128 * MIB
torch.cuda.reset_peak_memory_stats()
assert torch.cuda.max_memory_allocated() == 64 * MIB and torch.cuda.max_memory_reserved() == 128 * MIB
torch.cuda.reset_accumulated_memory_stats()
torch.cuda.empty_cache()
assert torch.cuda.memory_reserved() == 64 * MIB
assert "PyTorch CUDA memory summary" in torch.cuda.memory_summary() and torch.cuda.memory_summary(abbreviated=True)
assert torch.cuda.list_gpu_processes().startswith("GPU:0") or "pynvml" in torch.cuda.list_gpu_processes()
assert "num_ooms" in torch.cuda.memory_stats() and torch.cuda.memory_stats()["num_ooms"] == 0

torch.cuda.memory._record_memory_history(max_entries=1000)
kept = [torch.empty(3 * MIB, dtype=torch.uint8, device=device) for _ in range(3)]
del kept[1]
snapshot = torch.cuda.memory._snapshot()
assert {"segments", "device_traces"} <= set(snapshot)
assert sum(s["total_size"] for s in snapshot["segments"]) == torch.cuda.memory_reserved()
actions = [e["action"] for e in snapshot["device_traces"][0]]
assert actions.count("alloc") == 3 and "segment_alloc" in actions and "free_completed" in actions, actions
assert any("memory_statistics.py" in frame["filename"] for e in snapshot["device_traces"][0] for frame in e.get("frames", [])), "stack traces"
with tempfile.TemporaryDirectory() as directory:
    path = os.path.join(directory, "snapshot.pickle")
    torch.cuda.memory._dump_snapshot(path)
    with open(path, "rb") as file:
        assert pickle.load(file)["segments"]
torch.cuda.memory._record_memory_history(enabled=None)
assert len(torch.cuda.memory_snapshot()) == len(snapshot["segments"])
del kept, x

torch.cuda.set_per_process_memory_fraction(0.25)
try:
    torch.empty(int(total * 0.3), dtype=torch.uint8, device=device)
    raise SystemExit("more than the fraction was given")
except torch.cuda.OutOfMemoryError as error:
    assert "out of memory" in str(error)
torch.cuda.set_per_process_memory_fraction(1.0)
assert torch.cuda.memory_stats()["num_ooms"] == 1
torch.cuda.caching_allocator_delete(torch.cuda.caching_allocator_alloc(MIB))
print("ok")
