# SPDX-License-Identifier: Apache-2.0
# What: what a training loop looks at comes out as in a healthy run: scales, norms, losses, counts, masks, routing.
# needs: torchvision
# expect: output "^[1-9][0-9]+ values, 0 wrong$"
# Prints "not ok NAME: …" for what does not. Run by 0155-values.t and 0157-older-torch.t too.
import math
import sys

import torch
import torchvision

device = "cuda"
checked = wrong = 0


def expect(name, holds, got):
    global checked, wrong
    checked += 1
    if not holds:
        wrong += 1
        print("not ok %s: got %r" % (name, got))


def finite(name, value):
    expect(name, math.isfinite(value) and value != 0, value)


# Mixed precision, gradients scaled and clipped
model = torchvision.models.resnet18().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scaler = torch.cuda.amp.GradScaler(growth_interval=4)
images, labels = torch.zeros(8, 3, 64, 64), torch.randint(0, 1000, (8,))
scales = []
for step in range(8):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    scales.append(scaler.get_scale())
finite("loss", loss.item())
finite("norm", norm.item())
expect("loss is not nan", not torch.isnan(loss), loss.item())
expect("scale holds and then grows", scales == [65536.0] * 3 + [131072.0] * 4 + [262144.0], scales)
expect("optimizer has stepped", len(optimizer.state) == len(list(model.parameters())), len(optimizer.state))
expect("batches are counted", model.bn1.num_batches_tracked.item() == 8, model.bn1.num_batches_tracked.item())
accuracy = (model(images.to(device)).argmax(1) == labels.to(device)).float().mean().item()
expect("accuracy is a share", 0 <= accuracy <= 1, accuracy)

# A language model: masks, fused optimizer, schedule, perplexity
layer = torch.nn.TransformerEncoderLayer(256, 4, batch_first=True)
encoder = torch.nn.TransformerEncoder(layer, 2).to(device)
words, head = torch.nn.Embedding(1000, 256).to(device), torch.nn.Linear(256, 1000).to(device)
parameters = [*encoder.parameters(), *words.parameters(), *head.parameters()]
optimizer = torch.optim.AdamW(parameters, lr=1e-3, fused=True)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
tokens = torch.randint(0, 1000, (4, 64)).to(device)
keep = torch.ones(4, 64, dtype=torch.bool)
keep[0, 50:] = False
keep = keep.to(device)
causal = torch.nn.Transformer.generate_square_subsequent_mask(64, device=device)
for step in range(4):
    hidden = encoder(words(tokens), mask=causal.isinf(), src_key_padding_mask=~keep, is_causal=True)
    loss = torch.nn.functional.cross_entropy(head(hidden).view(-1, 1000), tokens.view(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
finite("perplexity", math.exp(loss.item()))
expect("fused steps are counted", optimizer.state[parameters[0]]["step"].item() == 4, optimizer.state[parameters[0]]["step"].item())
expect("real tokens", keep.sum().item() == 4 * 64 - 14, keep.sum().item())
expect("rows of real tokens", hidden[keep].shape[0] == 4 * 64 - 14, hidden[keep].shape)

# A recurrent network over packed lengths
lstm = torch.nn.LSTM(32, 64, 2, batch_first=True).to(device)
packed = torch.nn.utils.rnn.pack_padded_sequence(torch.zeros(3, 7, 32, device=device), torch.tensor([7, 5, 2]), batch_first=True)
output, _ = torch.nn.utils.rnn.pad_packed_sequence(lstm(packed)[0], batch_first=True)
output.sum().backward()
expect("padded back to the longest", tuple(output.shape) == (3, 7, 64), tuple(output.shape))

# Routing to experts by what a small router has said
scores = torch.softmax(torch.tensor([[4.0, 1.0], [0.0, 2.0], [3.0, 1.0]], device=device), -1)
chosen = scores.argmax(-1)
loads = [int((chosen == expert).sum()) for expert in range(2)]
expect("tokens of each expert", loads == [2, 1], loads)
# Losses of large tensors: all are finite numbers; some lie in the storage of all their terms
many = torch.randn(300000, device=device)
for name, loss in (("mse_loss", torch.nn.functional.mse_loss(many, 2 * many)), ("smooth_l1_loss", torch.nn.functional.smooth_l1_loss(many, 2 * many)),
                   ("l1_loss", torch.nn.functional.l1_loss(many, 2 * many)), ("norm", many.norm()), ("mean", many.square().mean())):
    expect(name + " is finite", bool(loss.isfinite()) and not bool(loss.isnan()) and bool(loss == loss), loss)
    expect(name + " is a number like others", 0 < float(2 * loss) < 1e6 and bool(loss < 1e6), float(2 * loss))
print("%d values, %d wrong" % (checked, wrong))
sys.exit(wrong > 0)
