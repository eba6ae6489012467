# SPDX-License-Identifier: Apache-2.0
# What: where no C++ compiler is, values are not followed: the estimate goes on without, and says so.
# expect: note "values were not followed .*no C\+\+ compiler"
# expect: that e["peak_allocated_bytes"] > 3 * 4 * 2 ** 24 and e["steps"] == 3
import os
import re
import tempfile

# The commands of this machine but its compilers, and no tracer that was compiled before.
here = tempfile.mkdtemp()
commands, cache = os.path.join(here, "bin"), os.path.join(here, "cache")
os.mkdir(commands)
os.mkdir(cache, 0o700)
for folder in ("/usr/local/bin", "/usr/bin", "/bin"):
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        if not re.search(r"(\+\+|g?cc|clang)(-|$)", name) and not os.path.lexists(os.path.join(commands, name)):
            os.symlink(os.path.join(folder, name), os.path.join(commands, name))
os.environ.update(PATH=commands, GPUMEM_SHIM_TRACER_CACHE=cache)
for name in ("CXX", "GPUMEM_TRACER"):
    os.environ.pop(name, None)

import torch  # noqa: E402

model = torch.nn.Linear(4096, 4096).cuda()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(3):
    optimizer.zero_grad()
    loss = model(torch.ones(8, 4096).cuda()).square().mean()
    loss.backward()
    optimizer.step()
assert os.listdir(cache) in ([], [name for name in os.listdir(cache) if name.endswith(".lock")])
print("ok")
