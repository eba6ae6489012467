# SPDX-License-Identifier: Apache-2.0
# What: cholesky, svd, eigh, solve, qr, lstsq, inverse and friends: single, batched, with gradients; small ones have their values.
import torch

device = "cuda"
L = torch.linalg


def matrix(*shape, dtype=torch.float32):
    return (torch.eye(shape[-1], device=device, dtype=dtype) * 2).expand(*shape).contiguous().requires_grad_()


for shape in ((64, 64), (8, 64, 64), (1, 300, 300), (130, 16, 16), (2, 700, 700)):
    for dtype in (torch.float32, torch.float64):
        a = matrix(*shape, dtype=dtype)
        b = torch.ones(*shape[:-1], 3, device=device, dtype=dtype)
        n = shape[-1]
        results = [L.cholesky(a), L.inv(a), L.solve(a, b), L.det(a), L.slogdet(a)[1], L.eigh(a)[0], L.eigvalsh(a), L.qr(a)[1],
                   L.svd(a, full_matrices=False)[1], L.svdvals(a), L.lu(a)[2], L.solve_triangular(torch.triu(a), b, upper=True),
                   torch.cholesky_solve(b, L.cholesky(a)), torch.cholesky_inverse(L.cholesky(a)), L.lstsq(a, b).solution,
                   L.pinv(a), L.matrix_norm(a, 2), L.cond(a), L.householder_product(a, torch.ones(*shape[:-1], device=device, dtype=dtype))]
        assert results[0].shape == a.shape and results[2].shape == b.shape and results[8].shape == (*shape[:-2], n)
        sum(r.sum() for r in results[:11]).backward()
        assert a.grad.shape == a.shape
        rank = L.matrix_rank(a.detach())
        assert rank.shape == shape[:-2] and set(rank.flatten().tolist()) == {n}, (shape, rank)
        assert L.eigvals(a.detach()).is_complex() if n <= 64 else True
c = matrix(32, 32, dtype=torch.complex64)
assert L.svd(c)[1].dtype == torch.float32 and L.eigh(c)[0].shape == (32,) and L.solve(c, c).is_complex()
for driver in ("gesvd", "gesvdj", "gesvda"):
    assert L.svd(torch.ones(4, 60, 40, device=device), full_matrices=False, driver=driver)[1].shape == (4, 40)
assert torch.svd_lowrank(torch.ones(200, 100, device=device), q=8)[1].shape == (8,)
assert torch.lobpcg(matrix(50, 50).detach(), k=2, niter=3)[0].shape == (2,)
assert L.ldl_factor(matrix(8, 8).detach())[0].shape == (8, 8)
tall = torch.ones(5, 100, 20, device=device)
assert L.qr(tall)[0].shape == (5, 100, 20) and L.qr(tall, mode="complete")[0].shape == (5, 100, 100)
assert torch.geqrf(tall)[1].shape == (5, 20) and torch.ormqr(tall[0], torch.ones(20, device=device), torch.ones(100, 4, device=device)).shape == (100, 4)

two = torch.tensor([[4.0, 0.0], [0.0, 9.0]], device=device)
assert L.cholesky(two).tolist() == [[2.0, 0.0], [0.0, 3.0]]
assert L.det(two).item() == 36 and L.inv(two).tolist() == [[0.25, 0.0], [0.0, 1 / 9.0]] or abs(L.inv(two)[1, 1].item() - 1 / 9) < 1e-6
assert sorted(L.eigvalsh(two).tolist()) == [4.0, 9.0]
assert L.solve(two, torch.tensor([8.0, 27.0], device=device)).tolist() == [2.0, 3.0]
assert L.matrix_rank(two).item() == 2
assert abs(L.matrix_exp(torch.zeros(2, 2, device=device)).sum().item() - 2) < 1e-6
assert L.matrix_rank(two.expand(4, 2, 2).contiguous()).tolist() == [2] * 4

# The exponential of a batch sorts its matrices by norms, known or not.
assert L.matrix_exp(torch.zeros(5, 2, 2, device=device)).sum().item() == 10
unknown = torch.randn(8, 128, 128, device=device, requires_grad=True)
L.matrix_exp(unknown).sum().backward()
assert unknown.grad.shape == unknown.shape and L.matrix_exp(torch.randn(300, 300, device=device)).shape == (300, 300)

# A preconditioner in the manner of Shampoo
weight = torch.nn.Parameter(torch.ones(256, 128, device=device))
left = torch.eye(256, device=device)
for _ in range(2):
    (torch.ones(32, 256, device=device) @ weight).square().mean().backward()
    left.addmm_(weight.grad, weight.grad.T)
    values, vectors = L.eigh(left)
    step = vectors @ torch.diag(values.clamp_min(1e-6).pow(-0.25)) @ vectors.T @ weight.grad
    with torch.no_grad():
        weight -= 0.1 * step
    weight.grad = None
print("ok")
