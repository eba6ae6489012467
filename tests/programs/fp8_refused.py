# SPDX-License-Identifier: Apache-2.0
# What: what an Ampere GPU cannot do is refused as there: FP8 products.
import torch

a = torch.zeros(128, 256, device="cuda").to(torch.float8_e4m3fn)
one = torch.tensor(1.0, device="cuda")
try:
    torch._scaled_mm(a, a.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
    raise SystemExit("an sm_86 GPU multiplied FP8 matrices")
except RuntimeError as error:
    assert "compute capability" in str(error) or "CUBLAS" in str(error), error
print("ok")
