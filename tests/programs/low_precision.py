# SPDX-License-Identifier: Apache-2.0
# What: int8 and FP8 matrix products, dynamic quantization by hand, fp16 accumulation settings, TF32.
# gpu: NVIDIA H100 80GB HBM3
import torch

device = "cuda"
a, b = torch.ones(64, 128, dtype=torch.int8, device=device), torch.ones(128, 256, dtype=torch.int8, device=device)
product = torch._int_mm(a, b)
assert product.dtype == torch.int32 and product.shape == (64, 256)
assert a.sum().item() == 64 * 128


class QuantizedLinear(torch.nn.Module):
    def __init__(self, linear):
        super().__init__()
        scale = linear.weight.abs().amax(1, keepdim=True) / 127
        self.register_buffer("weight", (linear.weight / scale).round().to(torch.int8))
        self.register_buffer("scale", scale)

    def forward(self, x):
        xs = x.abs().amax(-1, keepdim=True).clamp_min(1e-6) / 127
        return torch._int_mm((x / xs).round().to(torch.int8), self.weight.t()).float() * xs * self.scale.t()


with torch.no_grad():
    assert QuantizedLinear(torch.nn.Linear(512, 256).to(device))(torch.ones(64, 512, device=device)).shape == (64, 256)

one = torch.tensor(1.0, device=device)
left = torch.ones(128, 256, device=device).to(torch.float8_e4m3fn)
right = torch.ones(512, 256, device=device).to(torch.float8_e4m3fn).t()
VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
out = torch._scaled_mm(left, right, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
if VERSION < (2, 5):
    out = out[0]  # with the largest value of the result, then
assert out.shape == (128, 512) and out.dtype == torch.bfloat16
if VERSION >= (2, 5):  # scales by row
    out = torch._scaled_mm(left, right, scale_a=torch.ones(128, 1, device=device), scale_b=torch.ones(1, 512, device=device), out_dtype=torch.bfloat16)
    assert out.shape == (128, 512)
assert torch.ones(16, 16, device=device).to(torch.float8_e4m3fn).float().sum().item() == 256

torch.backends.cuda.matmul.allow_tf32 = True
torch.set_float32_matmul_precision("high")
torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
half = torch.nn.Linear(1024, 1024).to(device).half()
for _ in range(2):
    half(torch.ones(64, 1024, device=device).half()).float().square().mean().backward()
assert half.weight.grad.dtype == torch.float16
# Before 2.2 the CPU has no product of halves: there is nothing to follow its value with.
for cut in (torch.float16, torch.bfloat16, torch.float64)[VERSION < (2, 2):]:
    x = torch.ones(4, 4, device=device, dtype=cut)
    assert (x @ x)[0, 0].item() == 4 and torch.addmm(x, x, x)[0, 0].item() == 5 and torch.bmm(x[None], x[None]).shape == (1, 4, 4)
print("ok")
