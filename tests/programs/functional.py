# SPDX-License-Identifier: Apache-2.0
# What: torch.func (grad, vmap, jvp, jacobians, per-sample gradients), forward-mode AD, higher-order gradients, hooks, anomaly mode.
import torch
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

device = "cuda"
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 4)).to(device)
parameters = {k: v.detach() for k, v in model.named_parameters()}
x, y = torch.ones(128, 32, device=device), torch.zeros(128, dtype=torch.long, device=device)


def loss_of(parameters, sample, label):
    return torch.nn.functional.cross_entropy(functional_call(model, parameters, (sample[None],)), label[None])


each = vmap(grad(loss_of), in_dims=(None, 0, 0))(parameters, x, y)
assert each["0.weight"].shape == (128, 64, 32)
assert vmap(grad(loss_of), in_dims=(None, 0, 0), chunk_size=32)(parameters, x, y)["2.bias"].shape == (128, 4)
stacked, buffers = torch.func.stack_module_state([torch.nn.Linear(8, 8).to(device) for _ in range(5)])
base = torch.nn.Linear(8, 8).to("meta")
assert vmap(lambda p, b, x: functional_call(base, (p, b), (x,)), in_dims=(0, 0, None))(stacked, buffers, torch.ones(3, 8, device=device)).shape == (5, 3, 8)


def f(v):
    return (v ** 3).sum()


v = torch.tensor([1.0, 2.0], device=device)
assert grad(f)(v).tolist() == [3.0, 12.0]
assert hessian(f)(v).tolist() == [[6.0, 0.0], [0.0, 12.0]]
assert jvp(f, (v,), (torch.ones(2, device=device),))[1].item() == 15
assert vjp(f, v)[1](torch.tensor(1.0, device=device))[0].tolist() == [3.0, 12.0]
assert jacrev(torch.sin)(v).shape == jacfwd(torch.sin)(v).shape == (2, 2)
assert vmap(torch.dot)(torch.ones(3, 4, device=device), torch.ones(3, 4, device=device)).tolist() == [4.0] * 3
with torch.autograd.forward_ad.dual_level():
    dual = torch.autograd.forward_ad.make_dual(v, torch.ones(2, device=device))
    assert torch.autograd.forward_ad.unpack_dual(dual * dual).tangent.tolist() == [2.0, 4.0]

# Gradient penalty, as in WGAN-GP, and a Hessian-vector product
critic = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Softplus(), torch.nn.Linear(256, 1)).to(device)
optimizer = torch.optim.Adam(critic.parameters())
for _ in range(2):
    inputs = torch.ones(512, 64, device=device, requires_grad=True)
    gradient, = torch.autograd.grad(critic(inputs).sum(), inputs, create_graph=True)
    penalty = ((gradient.norm(dim=1) - 1) ** 2).mean()
    optimizer.zero_grad()
    penalty.backward()
    optimizer.step()
    assert penalty.item() == penalty.item()
w = torch.ones(100, device=device, requires_grad=True)
first, = torch.autograd.grad((w ** 3).sum(), w, create_graph=True)
second, = torch.autograd.grad((first * torch.ones_like(w)).sum(), w)
assert second[0].item() == 6


class Clamp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(-1, 1)

    @staticmethod
    def backward(ctx, gradient):
        x, = ctx.saved_tensors
        return gradient * (x.abs() <= 1)


u = torch.tensor([0.5, 2.0], device=device, requires_grad=True)
Clamp.apply(u).sum().backward()
assert u.grad.tolist() == [1.0, 0.0]
seen = []
layer = torch.nn.Linear(8, 8).to(device)
layer.register_full_backward_hook(lambda *_: seen.append("module"))
layer.weight.register_post_accumulate_grad_hook(lambda p: seen.append("parameter"))
with torch.autograd.graph.save_on_cpu(pin_memory=True), torch.autograd.detect_anomaly(check_nan=True):
    layer(torch.ones(4, 8, device=device, requires_grad=True)).square().sum().backward()
assert sorted(seen) == ["module", "parameter"], seen
print("ok")
