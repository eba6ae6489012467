# SPDX-License-Identifier: Apache-2.0
# What: kernels that PyTorch compiles at run time through NVRTC: torch.cuda.jiterator and torch.cuda._compile_kernel.
# needs: torch>=2.9
import torch

x = torch.rand(1000, device="cuda")
twice = torch.cuda.jiterator._create_jit_fn("template <typename T> T twice(T x, T by) { return x * by; }", by=2.0)
y = twice(x)
assert y.shape == x.shape and y.device == x.device
assert twice(x.half(), by=3.0).dtype == torch.float16

kernel = torch.cuda._compile_kernel(
    'extern "C" __global__ void add(const float *a, const float *b, float *c, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) c[i] = a[i] + b[i]; }',
    "add")
c = torch.empty_like(x)
kernel((4, 1, 1), (256, 1, 1), (x, y, c, x.numel()))
torch.cuda.synchronize()
# Special functions are compiled at run time too.
assert torch.special.i1(x).shape == x.shape and torch.special.zeta(x, x).shape == x.shape
print("ok")
