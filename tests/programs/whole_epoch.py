# SPDX-License-Identifier: Apache-2.0
# What: a program that counts the batches of its epoch fails where it was shortened, and is run again with whole epochs.
# early end
# quick
# expect: note "run again with whole epochs"
# expect: no-note "epochs of .* were shortened"
import torch

data = torch.utils.data.TensorDataset(torch.randn(120, 8), torch.arange(120))
loader = torch.utils.data.DataLoader(data, batch_size=4)
model = torch.nn.Linear(8, 2).cuda()
seen = []
with torch.no_grad():
    for x, y in loader:
        model(x.cuda())
        seen += y.tolist()
assert seen == list(range(120)), "%d of 120 samples" % len(seen)
print("ok")
