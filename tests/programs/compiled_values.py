# SPDX-License-Identifier: Apache-2.0
# What: torch.compile with graph breaks that depend on values: .item() in a condition, masks, nonzero, unique, numpy, checkpoints.
# needs: torch>=2.2
# timeout: 300
# expect: output "^[1-9][0-9]* values, 0 wrong$"
# Small values inside compiled graphs are computed beside them; what is not is healthy.
import io
import sys

import torch

device = "cuda"
torch.manual_seed(0)
checked = wrong = 0


def expect(name, compute, expected):
    global checked, wrong
    checked += 1
    try:
        compute()  # the first call runs inside the compiler's own modes
        got = compute()
    except Exception as error:
        got = "%s: %s" % (type(error).__name__, str(error)[:300])
    if got != expected:
        wrong += 1
        print("not ok %s: expected %r, got %r" % (name, expected, got))


x = torch.arange(6.0, device=device)
keep = torch.tensor([True, False, True, True, False, False], device=device)
limit = torch.tensor(20.0, device=device)
labels = torch.tensor([3, -100, 1, 3, -100, 2], device=device)


@torch.compile
def branch(x, limit):
    if limit.item() > 15:
        return x + 1
    return x - 1


expect("a condition", lambda: branch(x, limit).tolist(), [1, 2, 3, 4, 5, 6])
lower = torch.tensor(10.0, device=device)
expect("the other way", lambda: branch(x, lower).tolist(), [-1, 0, 1, 2, 3, 4])


@torch.compile
def masked(x, keep):
    picked = x[keep]
    return (picked * 2).shape[0], keep.nonzero().shape[0]


expect("a mask", lambda: masked(x, keep), (3, 3))


@torch.compile
def unique(labels):
    different, counts = torch.unique(labels, return_counts=True)
    return different.shape[0], counts.max().item()


expect("unique", lambda: unique(labels), (4, 2))


@torch.compile
def on_the_host(x):
    return float(x.cpu().numpy().sum()) + x.tolist()[1]


expect("numpy and tolist", lambda: on_the_host(x), 16.0)


@torch.compile
def computed_mask(x, labels):
    real = labels != -100
    return x[real].shape[0]


expect("a mask that the graph computes", lambda: computed_mask(x, labels), 4)


@torch.compile
def computed_condition(x, limit):
    y = x * 2
    if y.sum().item() > limit:
        return (y + 1).tolist()
    return (y - 1).tolist()


expect("a condition that the graph computes", lambda: computed_condition(x, 20), [1, 3, 5, 7, 9, 11])
expect("and the other way", lambda: computed_condition(x, 40), [-1, 1, 3, 5, 7, 9])


@torch.compile
def saved(x):
    file = io.BytesIO()
    torch.save({"x": x}, file)
    file.seek(0)
    return torch.load(file)["x"].tolist()


expect("a checkpoint inside", lambda: saved(x), [0, 1, 2, 3, 4, 5])

model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 64)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler(device) if hasattr(torch.amp, "GradScaler") else torch.cuda.amp.GradScaler()
labels = torch.randint(0, 64, (128,))
labels[20:50] = -100


@torch.compile
def forward(batch, labels):
    real = labels != -100
    logits = model(batch)[real]
    loss = torch.nn.functional.cross_entropy(logits, labels[real])
    if not torch.isfinite(loss).item():
        return loss, 0
    return loss, logits.shape[0]


def step():
    loss, count = forward(torch.ones(128, 512, device=device), labels.to(device))
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    return count, loss.item() > 0, scaler.get_scale()


expect("a training step", step, (98, True, 65536.0))
print("%d values, %d wrong" % (checked, wrong))
sys.exit(wrong > 0)
