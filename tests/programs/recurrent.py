# SPDX-License-Identifier: Apache-2.0
# What: LSTM, GRU and RNN by cuDNN: layers, directions, dropout, projection, packed sequences, fp16; CTC loss of both kinds.
# expect: note "LSTM"
import torch

device = "cuda"
T, B, I, H = 50, 16, 40, 128


def train(net, x, reps=2):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    peaks = []
    for _ in range(reps):
        torch.cuda.reset_peak_memory_stats()
        optimizer.zero_grad()
        out, _ = net(x)
        out = out.data if isinstance(out, torch.nn.utils.rnn.PackedSequence) else out
        out.square().mean().backward()
        optimizer.step()
        peaks.append(torch.cuda.max_memory_allocated())
    assert all(p.grad is not None for p in net.parameters())
    return out, peaks[-1]


for kind in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
    for options in ({}, {"num_layers": 3, "dropout": 0.2}, {"num_layers": 2, "bidirectional": True}, {"bias": False, "batch_first": True}):
        net = kind(I, H, **options).to(device)
        x = torch.ones(B, T, I, device=device) if options.get("batch_first") else torch.ones(T, B, I, device=device)
        out, _ = train(net, x)
        assert out.shape[-1] == H * (2 if options.get("bidirectional") else 1)
        net.eval()
        with torch.no_grad():
            assert net(x)[0].shape == out.shape
        net.flatten_parameters()
assert train(torch.nn.LSTM(I, H, proj_size=32).to(device), torch.ones(T, B, I, device=device))[0].shape == (T, B, 32)
half, _ = train(torch.nn.LSTM(I, H, 2).to(device).half(), torch.ones(T, B, I, device=device).half())
assert half.dtype == torch.float16
with torch.autocast("cuda"):
    assert torch.nn.LSTM(I, H).to(device)(torch.ones(T, B, I, device=device))[0].dtype == torch.float16

lengths = torch.tensor([50, 40, 7, 3])
packed = torch.nn.utils.rnn.pack_padded_sequence(torch.ones(T, 4, I, device=device), lengths)
out, _ = train(torch.nn.GRU(I, H, 2, bidirectional=True).to(device), packed)
assert out.shape == (100, 2 * H)
net = torch.nn.LSTM(I, H).to(device)
hidden = net(packed)
padded, back = torch.nn.utils.rnn.pad_packed_sequence(hidden[0])
assert padded.shape == (T, 4, H) and back.tolist() == lengths.tolist()
cell = torch.nn.LSTMCell(I, H).to(device)
state = None
for _ in range(3):
    state = cell(torch.ones(B, I, device=device), state)
state[0].sum().backward()

# Longer sequences keep more for the backward pass.
net = torch.nn.LSTM(I, 256, 2).to(device)
short, long = train(net, torch.ones(50, B, I, device=device))[1], train(net, torch.ones(200, B, I, device=device))[1]
assert long > short + 2 * 150 * B * 256 * 4, (short, long)

# CTC: cuDNN's takes labels from the host and no blanks but 0; PyTorch's own the rest.
logits = torch.ones(T, B, 20, device=device, requires_grad=True)
for dtype, where, blank in ((torch.int32, "cpu", 0), (torch.int64, device, 0), (torch.int64, device, 3)):
    targets = torch.full((B * 10,), 5, dtype=dtype, device=where)
    loss = torch.nn.functional.ctc_loss(logits.log_softmax(-1), targets, (T,) * B, (10,) * B, blank=blank, zero_infinity=True)
    logits.grad = None
    loss.backward()
    assert logits.grad.shape == logits.shape and loss.item() > 0
print("ok")
