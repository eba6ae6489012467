# SPDX-License-Identifier: Apache-2.0
# What: a device that lags behind the host (GPUMEM_CLOCK=lagging): blocks that another stream used stay taken until something waits.
# env: GPUMEM_CLOCK=lagging
import torch

MIB = 1 << 20
side = torch.cuda.Stream()


def hand_over(times):
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    for _ in range(times):
        x = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            x.add_(1)
        x.record_stream(side)
        del x
    return torch.cuda.max_memory_reserved()


assert hand_over(8) == 8 * 64 * MIB                      # never waited: each has memory of its own
torch.cuda.synchronize()
x = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
assert torch.cuda.memory_reserved() == 8 * 64 * MIB      # waited: used again
del x

# A host that waits for each is never ahead by more than one.
torch.cuda.empty_cache()
torch.cuda.reset_peak_memory_stats()
for _ in range(8):
    x = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x.add_(1)
    x.record_stream(side)
    del x
    side.synchronize()
assert torch.cuda.max_memory_reserved() == 64 * MIB, torch.cuda.max_memory_reserved()

# Events: not ready until waited for; who only asks gets an answer in the end; times are told when it is over.
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
start.record()
torch.ones(1000, device="cuda").add_(1)
end.record()
assert not end.query()
end.synchronize()
assert end.query() and start.elapsed_time(end) > 0
start.record()
y = torch.ones(1000, device="cuda").add_(1)
end.record()
asked = 0
while not end.query():
    asked += 1
assert 0 < asked < 1000 and y.sum().item() == 2000

# A host cannot run further ahead than launches can be queued.
torch.cuda.synchronize()
z = torch.zeros(4, device="cuda")
start.record()
for _ in range(2000):
    z.add_(1)
assert start.query()
print("ok")
