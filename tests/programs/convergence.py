# SPDX-License-Identifier: Apache-2.0
# What: a loop that waits for a loss that was never computed to become small is ended by the probe, with a note; several guesses, each named.
# early end
# expect: that e["stopped_early"] and e["steps"] < 200
# expect: note "healthy one .*_local_scalar_dense"
# expect: note "as large as it can be .*nonzero"
# expect: note "as large as it can be .*unique"
# expect: note "healthy one .*(argmax|topk)"
import torch

model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 64)).cuda()
optimizer = torch.optim.Adam(model.parameters())
inputs, targets = torch.randn(256, 512).cuda(), torch.randn(256, 64).cuda()
loss = torch.tensor(1.0)
while loss.item() > 1e-6:
    optimizer.zero_grad()
    outputs = model(inputs)
    loss = torch.nn.functional.mse_loss(outputs, targets)
    hard = outputs.detach()[outputs.detach() > 2]
    names = torch.unique(outputs.detach())
    classes = outputs.argmax(1)
    assert hard.shape == names.shape == (256 * 64,) and classes.bincount(minlength=64).sum().item() == 256
    loss.backward()
    optimizer.step()
raise AssertionError("a loss that nobody computed has become small")
