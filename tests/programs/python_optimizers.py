# SPDX-License-Identifier: Apache-2.0
# What: optimizers written in Python: Adafactor (torch's own where it has one), LAMB, Lion, Muon; EMA and SWA of weights.
import torch

device = "cuda"


class Lamb(torch.optim.Optimizer):
    def __init__(self, parameters, lr=1e-3):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["m"], state["v"] = torch.zeros_like(p), torch.zeros_like(p)
                state["m"].lerp_(p.grad, 0.1)
                state["v"].mul_(0.999).addcmul_(p.grad, p.grad, value=0.001)
                update = state["m"] / (state["v"].sqrt() + 1e-6)
                weight_norm, update_norm = p.norm(), update.norm()
                trust = (weight_norm / update_norm).item() if weight_norm > 0 and update_norm > 0 else 1.0
                assert trust == trust and trust > 0
                p.add_(update, alpha=-group["lr"] * trust)


class Lion(torch.optim.Optimizer):
    def __init__(self, parameters, lr=1e-4):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                p.add_(m.mul(0.9).add(p.grad, alpha=0.1).sign_(), alpha=-group["lr"])
                m.lerp_(p.grad, 0.01)


class Muon(torch.optim.Optimizer):
    def __init__(self, parameters, lr=0.02):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p)).mul_(0.95).add_(p.grad)
                x = m.view(m.shape[0], -1).bfloat16()
                x = x / (x.norm() + 1e-7)
                for _ in range(5):
                    a = x @ x.T
                    x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
                p.add_(x.view_as(p).to(p.dtype), alpha=-group["lr"])


def train(make, states):
    model = torch.nn.Sequential(torch.nn.Linear(1024, 1024, bias=False), torch.nn.ReLU(), torch.nn.Linear(1024, 512, bias=False)).to(device)
    optimizer = make(model.parameters())
    for _ in range(3):
        optimizer.zero_grad(set_to_none=True)
        loss = model(torch.ones(64, 1024, device=device)).square().mean()
        loss.backward()
        optimizer.step()
        assert loss.item() > 0
    held = sum(t.numel() * t.element_size() for s in optimizer.state.values() for t in s.values() if torch.is_tensor(t))
    weights = sum(p.numel() * 4 for p in model.parameters())
    assert states - 0.02 < held / weights < states + 0.02, (make, held / weights)


train(Lamb, 2)
train(Lion, 1)
train(Muon, 1)
if hasattr(torch.optim, "Adafactor"):
    train(torch.optim.Adafactor, 0)

model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.BatchNorm1d(256)).to(device)
before = torch.cuda.memory_allocated()
ema = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.99))
assert torch.cuda.memory_allocated() - before >= 256 * 256 * 4
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = torch.optim.swa_utils.SWALR(optimizer, swa_lr=0.05)
for _ in range(3):
    model(torch.ones(32, 256, device=device)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    ema.update_parameters(model)
    schedule.step()
assert ema.n_averaged.item() == 3
torch.optim.swa_utils.update_bn([torch.ones(32, 256) for _ in range(2)], ema, device=device)
assert ema.module[1].num_batches_tracked.item() == 2
print("ok")
