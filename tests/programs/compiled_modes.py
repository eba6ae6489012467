# SPDX-License-Identifier: Apache-2.0
# What: torch.compile with mode reduce-overhead (CUDA graphs with pools of their own) and max-autotune (templates timed).
# timeout: 400
import torch

device = "cuda"


def train(mode, fullgraph=True):
    torch._dynamo.reset()
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 64)).to(device).half()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    compiled = torch.compile(model, mode=mode, fullgraph=fullgraph)
    for _ in range(5):
        if hasattr(torch.compiler, "cudagraph_mark_step_begin"):  # since 2.2
            torch.compiler.cudagraph_mark_step_begin()
        loss = compiled(torch.ones(128, 256, device=device, dtype=torch.float16)).float().square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    assert model[0].weight.grad.shape == (512, 256)
    return loss.item()


for mode in ("reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune"):
    assert train(mode) > 0, mode
    print(mode, flush=True)
print("ok")
