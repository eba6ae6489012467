# SPDX-License-Identifier: Apache-2.0
# What: CUDA graphs: capture and replay, private pools shared by two graphs, make_graphed_callables.
import torch

device = "cuda"
resets = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 3)  # 2.1 releases the pool once more when a graph that was reset dies
model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 512)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
static_input = torch.ones(256, 512, device=device)

side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        optimizer.zero_grad(set_to_none=True)
        model(static_input).square().mean().backward()
        optimizer.step()
torch.cuda.current_stream().wait_stream(side)

graph = torch.cuda.CUDAGraph()
optimizer.zero_grad(set_to_none=True)
before = torch.cuda.memory_reserved()
with torch.cuda.graph(graph):
    assert torch.cuda.is_current_stream_capturing()
    loss = model(static_input).square().mean()
    loss.backward()
    optimizer.step()
assert not torch.cuda.is_current_stream_capturing()
private = torch.cuda.memory_reserved() - before
assert private > 0, "a graph has memory of its own"
for _ in range(3):
    static_input.copy_(torch.ones(256, 512))
    graph.replay()
torch.cuda.synchronize()
assert torch.isfinite(loss)
assert all(p.grad is not None for p in model.parameters())

# Two graphs in one pool take less than two pools
def capture(pool=None):
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g, pool=pool):
        out = (torch.empty(4 << 20, device=device) + 1).sum()
    return g, out


first, _ = capture()
reserved = torch.cuda.memory_reserved()
second, _ = capture(first.pool())
assert torch.cuda.memory_reserved() == reserved, "the second graph uses the first one's pool"
first.replay()
second.replay()
handle = torch.cuda.graph_pool_handle()
third, _ = capture(handle)
third.replay()
if resets:
    third.reset()
del third
if resets:
    graph.reset()

# Callables with forward and backward graphs
stage = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.Dropout(0.1), torch.nn.ReLU()).to(device)
head = torch.nn.Linear(512, 10).to(device)
sample = torch.ones(64, 512, device=device, requires_grad=True)
graphed = torch.cuda.make_graphed_callables(stage, (sample,))
optimizer = torch.optim.SGD([*stage.parameters(), *head.parameters()], lr=0.1)
for _ in range(4):
    optimizer.zero_grad(set_to_none=True)
    loss = head(graphed(torch.ones(64, 512, device=device, requires_grad=True))).square().mean()
    loss.backward()
    optimizer.step()
assert torch.isfinite(loss) and stage[0].weight.grad is not None

# What may not be captured ends the capture with an error, as on the GPU.
bad = torch.cuda.CUDAGraph()
try:
    with torch.cuda.graph(bad):
        torch.ones(3, device=device).sum().item()
    raise SystemExit("a synchronization was captured")
except RuntimeError as error:
    assert "captur" in str(error), error
print("ok")
