# SPDX-License-Identifier: Apache-2.0
"""A language model with four LSTM layers, truncated backpropagation through time, Adagrad."""
import torch
from torch import nn
from torch.utils.data import DataLoader

from synthetic import Tokens

VOCABULARY, WIDTH, LAYERS, LENGTH, BATCH, STEPS = 33000, 1024, 4, 128, 32, 140


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, LAYERS, batch_first=True, dropout=0.2)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens, state):
        output, state = self.lstm(self.embedding(tokens), state)
        return self.head(output), state


device = "cuda" if torch.cuda.is_available() else "cpu"
model = Model().to(device)
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)
criterion = nn.CrossEntropyLoss()
loader = DataLoader(Tokens(STEPS * BATCH, LENGTH, VOCABULARY, 0.003), batch_size=BATCH)
state = None
for step, batch in enumerate(loader):
    batch = batch.to(device)
    logits, state = model(batch[:, :-1], state)
    state = tuple(part.detach() for part in state)
    loss = criterion(logits.reshape(-1, VOCABULARY), batch[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.3f}", flush=True)
