# SPDX-License-Identifier: Apache-2.0
# What: checkpoints: small tensors keep their values, large ones that nobody computed cost neither disk nor memory.
# gpu: NVIDIA H100 80GB HBM3
# quick
import os
import resource
import tempfile
import time

import torch

folder = tempfile.mkdtemp(dir=os.getcwd() if os.access(os.getcwd(), os.W_OK) else None)
path = os.path.join(folder, "checkpoint.pt")


def blocks(file):
    return os.stat(file).st_blocks * 512


def ram_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


torch.manual_seed(0)
before_mib, began = ram_mib(), time.monotonic()
with torch.device("cuda"):
    model = torch.nn.Sequential(*[torch.nn.Linear(8192, 8192, dtype=torch.bfloat16) for _ in range(16)])  # 2 GiB
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
model(torch.randn(4, 8192, dtype=torch.bfloat16, device="cuda")).float().sum().backward()
optimizer.step()
exact = {"epoch": 3, "step": torch.tensor(17), "names": ["a"], "table": torch.arange(5000), "device": torch.arange(10, device="cuda")}
for target in (path, open(path + "2", "wb")):
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), **exact}, target)
    name = target if isinstance(target, str) else target.name
    if not isinstance(target, str):
        target.close()
    assert os.path.getsize(name) > 6 << 30, os.path.getsize(name)
    assert blocks(name) < 512 << 20, blocks(name)
    for where in ("cpu", None):
        loaded = torch.load(name, map_location=where)
        assert loaded["epoch"] == 3 and loaded["step"].item() == 17 and loaded["names"] == ["a"]
        assert torch.equal(loaded["table"].cpu(), torch.arange(5000)) and loaded["device"].tolist() == list(range(10))
        assert loaded["model"]["5.weight"].shape == (8192, 8192) and loaded["model"]["5.weight"].dtype == torch.bfloat16
        assert (loaded["model"]["5.weight"].device.type == "cpu") == (where == "cpu")
        model.load_state_dict(loaded["model"])
        optimizer.load_state_dict(loaded["optimizer"])
        del loaded
    # Over itself, while it is in use.
    held = torch.load(name, map_location="cpu")
    held["model"]["5.weight"][17, :4] = 7
    torch.save(held, name)
    again = torch.load(name, map_location="cpu")
    assert again["epoch"] == 3 and again["model"]["5.weight"][17, :4].tolist() == [7] * 4
    assert blocks(name) < 512 << 20, blocks(name)
    del held, again

# What the program computed itself comes back, large or small, written by a path or a file.
real = torch.arange(3 << 20, dtype=torch.float32)
for target in (path, open(path, "wb")):
    torch.save({"real": real, "half": real.half()}, target)
    if not isinstance(target, str):
        target.close()
    back = torch.load(path)
    assert torch.equal(back["real"], real) and torch.equal(back["half"], real.half())
torch.manual_seed(5)
random = torch.randn(1 << 20)
torch.save(random, path)
assert torch.equal(torch.load(path), random) and random.std() > 0.9

try:
    from safetensors.torch import load_file, save_file
except ImportError:
    pass
else:
    tensors = {k: v.cpu() for k, v in model.state_dict().items()}
    tensors["table"] = torch.arange(3 << 20)
    name = os.path.join(folder, "model.safetensors")
    save_file(tensors, name, metadata={"format": "pt"})
    assert os.path.getsize(name) > 2 << 30 and blocks(name) < 512 << 20
    loaded = load_file(name)
    assert torch.equal(loaded["table"], tensors["table"]) and set(loaded) == set(tensors)
    assert loaded["7.weight"].shape == (8192, 8192) and loaded["7.weight"].dtype == torch.bfloat16
    assert load_file(name, device="cuda")["7.weight"].is_cuda
    del loaded["table"]
    model.load_state_dict(loaded)
    wide = {k: v.float() for k, v in loaded.items()}
    assert wide["7.weight"].dtype == torch.float32

more_mib, seconds = ram_mib() - before_mib, time.monotonic() - began
assert more_mib < 1024, "%d MiB of RAM" % more_mib
print("ok: %d MiB more, %.1f s" % (more_mib, seconds))
