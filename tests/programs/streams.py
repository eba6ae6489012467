# SPDX-License-Identifier: Apache-2.0
# What: streams, events, record_stream and prefetching from pinned memory: blocks are kept as long as a GPU would.
import torch

device = "cuda"
MIB = 1 << 20
copy_stream = torch.cuda.Stream()
high = torch.cuda.Stream(priority=-1)
assert high.priority == -1 and copy_stream != torch.cuda.current_stream()

# A block used on another stream
torch.cuda.empty_cache()
x = torch.empty(64 * MIB, dtype=torch.uint8, device=device)
with torch.cuda.stream(copy_stream):
    y = x + 1
x.record_stream(copy_stream)
del x
copy_stream.synchronize()
del y
torch.cuda.synchronize()

# Blocks belong to the stream that they were made on.
with torch.cuda.stream(high):
    a = torch.empty(32 * MIB, dtype=torch.uint8, device=device)
    pointer = a.data_ptr()
    del a
b = torch.empty(32 * MIB, dtype=torch.uint8, device=device)
assert b.data_ptr() != pointer
with torch.cuda.stream(high):
    c = torch.empty(32 * MIB, dtype=torch.uint8, device=device)
    assert c.data_ptr() == pointer
del b, c

# Events
start, end, middle = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
start.record()
torch.ones(1024, 1024, device=device) @ torch.ones(1024, 1024, device=device)
end.record()
with torch.cuda.stream(high):
    high.wait_event(end)
    middle.record()
middle.synchronize()
assert start.query() and start.elapsed_time(end) >= 0 and end.elapsed_time(middle) >= 0
assert torch.cuda.current_stream().query()


# A prefetcher as in NVIDIA's examples
class Prefetcher:
    def __init__(self, batches):
        self.batches, self.stream = iter(batches), torch.cuda.Stream()
        self.preload()

    def preload(self):
        batch = next(self.batches, None)
        self.batch = None
        if batch is not None:
            with torch.cuda.stream(self.stream):
                self.batch = batch.to(device, non_blocking=True).float().div_(255)

    def next(self):
        torch.cuda.current_stream().wait_stream(self.stream)
        batch = self.batch
        if batch is not None:
            batch.record_stream(torch.cuda.current_stream())
            self.preload()
        return batch


pinned = [torch.full((16, 3, 64, 64), 255, dtype=torch.uint8).pin_memory() for _ in range(5)]
assert all(p.is_pinned() for p in pinned)
model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.Flatten(), torch.nn.LazyLinear(10)).to(device)
prefetcher, seen = Prefetcher(pinned), 0
while (batch := prefetcher.next()) is not None:
    assert batch.shape == (16, 3, 64, 64)
    model(batch).sum().backward()
    seen += 1
assert seen == 5

# Pinned memory keeps its values there and back
values = torch.arange(100_000, dtype=torch.float32).pin_memory()
back = torch.empty(100_000, pin_memory=True)
back.copy_(values.to(device, non_blocking=True), non_blocking=True)
torch.cuda.synchronize()
assert torch.equal(back, values)
print("ok")
