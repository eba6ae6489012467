# SPDX-License-Identifier: Apache-2.0
# What: foreach, fused and capturable optimizers: states as large as on a GPU, steps counted.
import gc
import inspect

import torch

device = "cuda"
SIDE = 512


def state_bytes(optimizer):
    return sum(t.numel() * t.element_size() for s in optimizer.state.values() for t in s.values() if torch.is_tensor(t) and t.numel() > 1)


def train(name, states, **options):
    # An option that this version's optimizer does not know is none of its features.
    if not set(options) <= set(inspect.signature(getattr(torch.optim, name)).parameters):
        return
    gc.collect()  # optimizers before 2.2 are in cycles: what one held must not be freed in another's step
    torch.cuda.empty_cache()
    model = torch.nn.Sequential(*[torch.nn.Linear(SIDE, SIDE) for _ in range(4)]).to(device)
    parameters = list(model.parameters())
    weights = sum(p.numel() * 4 for p in parameters)
    optimizer = getattr(torch.optim, name)(parameters, **options)
    for _ in range(3):
        optimizer.zero_grad(set_to_none=True)
        model(torch.ones(8, SIDE, device=device)).square().mean().backward()
        before = torch.cuda.memory_allocated()
        optimizer.step()
    assert torch.cuda.memory_allocated() == before, "states are made in the first step only"
    assert state_bytes(optimizer) == states * weights, (name, options, state_bytes(optimizer) / weights)
    step = optimizer.state[parameters[0]].get("step")
    assert step is None or float(step) == 3, step
    if options.get("fused") or options.get("capturable"):
        assert step is None or step.is_cuda


for kind in ({"foreach": False}, {"foreach": True}, {"fused": True}):
    train("SGD", 1, lr=0.1, momentum=0.9, **kind)
    train("Adam", 2, **kind)
    train("AdamW", 3, amsgrad=True, **kind)
for kind in ({"foreach": False}, {"foreach": True}, {"capturable": True}):
    train("RMSprop", 2, momentum=0.9, **kind)
    train("Adadelta", 2, **kind)
    train("NAdam", 2, **kind)
    train("RAdam", 2, **kind)
    train("Adamax", 2, **kind)
    train("Rprop", 2, **kind)
    train("ASGD", 1, **kind)
train("Adagrad", 1)
train("Adam", 2, capturable=True, foreach=True)

# L-BFGS calls its closure until its own criteria are met: it ends.
model = torch.nn.Linear(8, 8).to(device)
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=5, line_search_fn="strong_wolfe")
calls = 0


def closure():
    global calls
    calls += 1
    optimizer.zero_grad()
    loss = model(torch.ones(4, 8, device=device)).square().mean()
    loss.backward()
    return loss


optimizer.step(closure)
assert 1 <= calls < 100, calls
print("ok")
