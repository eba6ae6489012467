# SPDX-License-Identifier: Apache-2.0
# What: boolean masks, padding, labels of -100, data-dependent sizes and loops: exact where small, healthy where not.
# quick
import torch

device = "cuda"
vocabulary, width = 1000, 128
embed, head = torch.nn.Embedding(vocabulary, width).to(device), torch.nn.Linear(width, vocabulary).to(device)
tokens = torch.randint(0, vocabulary, (8, 100))
labels = tokens.clone()
labels[:, :30] = -100
labels[0, :] = -100
keep = torch.ones(8, 100, dtype=torch.bool)
keep[3, 60:] = False
tokens, labels, keep = tokens.to(device), labels.to(device), keep.to(device)
for _ in range(3):
    logits = head(embed(tokens))
    loss = torch.nn.functional.cross_entropy(logits.view(-1, vocabulary), labels.view(-1))
    assert loss.item() > 0 and torch.isfinite(loss)
    loss.backward()
real = (labels != -100) & keep
assert real.sum().item() == 7 * 70 - 40, real.sum()
picked = head(embed(tokens))[real]
assert picked.shape == (7 * 70 - 40, vocabulary)
torch.nn.functional.cross_entropy(picked, labels[real]).backward()
assert labels[real].min().item() >= 0
accuracy = (logits.argmax(-1)[real] == labels[real]).float().mean().item()
assert 0 <= accuracy <= 1
assert keep.sum(-1).tolist() == [100] * 3 + [60] + [100] * 4
assert keep.all(-1).tolist() == [True] * 3 + [False] + [True] * 4
assert bool(keep.any()) and not bool(keep.all())
none = torch.zeros(8, 100, dtype=torch.bool, device=device)
assert logits[none].shape == (0, vocabulary) and none.nonzero().shape == (0, 2)
masked = logits.masked_fill(~keep.unsqueeze(-1), float("-inf"))
assert masked.shape == logits.shape
where = torch.where(keep)
assert where[0].shape == where[1].shape == (760,)
logits.data[keep] = 0.0
assert logits.masked_select(keep.unsqueeze(-1)).shape == (760 * vocabulary,)
assert torch.nn.functional.pad(keep, (0, 4)).shape == (8, 104)

# Masked language modelling
picked = torch.full(tokens.shape, 0.15, device=device).bernoulli().bool()
count = int(picked.sum())
assert 0 < count < 400, count
assert logits[picked].shape[0] == count

# A loop until something holds that was never computed ends.
residual, rounds = torch.ones(1 << 20, device=device), 0
while residual.norm() > 1e-3 and rounds < 1000:
    residual = residual * 0.5
    rounds += 1
# Text generation until every line has ended
done = torch.zeros(4, dtype=torch.bool, device=device)
line = torch.zeros(4, 1, dtype=torch.long, device=device)
with torch.no_grad():
    while not done.all() and line.shape[1] < 12:
        following = head(embed(line[:, -1])).softmax(-1).multinomial(1)
        assert 0 <= int(following.min()) and int(following.max()) < vocabulary
        done |= following.squeeze(1) == 2
        line = torch.cat([line, following], 1)
assert 2 <= line.shape[1] <= 12
print("ok")
