# SPDX-License-Identifier: Apache-2.0
# What: an address-space limit (ulimit -v) in the program's way: a host's refusal is an error of its own, never out of memory on the GPU.
# expect: status complete
import resource

import torch

GIB = 1 << 30
torch.ones(1, device="cuda")
with open("/proc/self/statm") as statm:
    taken = int(statm.read().split()[0]) * resource.getpagesize()
soft, hard = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (taken + 2 * GIB, hard))
fits = torch.empty(GIB, dtype=torch.uint8, device="cuda")
try:
    torch.empty(6 * GIB, dtype=torch.uint8, device="cuda")
except torch.cuda.OutOfMemoryError:
    raise AssertionError("the host's limit looked like a full GPU")
except RuntimeError as error:
    assert "OS call failed" in str(error) or "operating system" in str(error).lower(), error
else:
    raise AssertionError("the limit was not felt")
resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
assert torch.empty(6 * GIB, dtype=torch.uint8, device="cuda").numel() == 6 * GIB and fits.numel() == GIB
print("ok")
