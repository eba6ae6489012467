# SPDX-License-Identifier: Apache-2.0
# What: kernels that programs compile while they run: jiterator (NVRTC), Triton kernels of one's own, torch.cuda._compile_kernel.
# timeout: 200
import torch

device = "cuda"
blend = torch.cuda.jiterator._create_jit_fn("template <typename T> T blend(T x, T y, T alpha) { return x * alpha + y; }", alpha=2.0)
x = torch.ones(1000, 1000, device=device)
assert blend(x, x, alpha=3.0).shape == x.shape
z = torch.ones(100000, dtype=torch.complex64, device=device)
for function in (torch.abs, torch.angle, torch.exp, torch.sigmoid, torch.sgn, torch.reciprocal, torch.tanh):  # NVRTC for complex numbers
    assert function(z).shape == z.shape
assert (z * z).sum().shape == () and z.prod().shape == ()
for function in (torch.special.bessel_j0, torch.special.zeta, torch.special.gammaln, torch.special.i1e, torch.special.ndtri):
    arguments = (x[:10], x[:10]) if function is torch.special.zeta else (x[:10],)
    assert function(*arguments).shape == (10, 1000)
assert torch.gcd(torch.tensor([12], device=device), torch.tensor([18], device=device)).item() == 6

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

if triton is not None:
    @triton.jit
    def add_kernel(a, b, out, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        tl.store(out + offsets, tl.load(a + offsets, mask=mask) + tl.load(b + offsets, mask=mask), mask=mask)

    @triton.autotune(configs=[triton.Config({"BLOCK": size}, num_warps=warps) for size, warps in ((128, 4), (1024, 8))], key=["n"])
    @triton.jit
    def tuned_kernel(a, out, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + offsets, tl.load(a + offsets, mask=offsets < n) * 2, mask=offsets < n)

    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 1024),)](x, x, out, x.numel(), BLOCK=1024)
    tuned_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
    torch.cuda.synchronize()
    assert torch.isfinite(out).all()

# 2.8 asks for libnvrtc.so, a name that only a whole CUDA toolkit has.
if hasattr(torch.cuda, "_compile_kernel") and tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 9):
    kernel = torch.cuda._compile_kernel('extern "C" __global__ void scale(const float *x, float *y, float a, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = a * x[i]; }', "scale")
    y = torch.empty(1000, device=device)
    kernel(grid=(4, 1, 1), block=(256, 1, 1), args=(torch.ones(1000, device=device), y, 2.0, 1000))
    torch.cuda.synchronize()
print("ok")
