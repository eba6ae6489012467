# SPDX-License-Identifier: Apache-2.0
"""A transformer of 1.3 billion parameters with Adam in full precision: too large for a GPU of 12 GiB."""
import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY, WIDTH, HEADS, LAYERS, LENGTH, BATCH, STEPS = 50304, 2048, 16, 24, 512, 2, 100

with torch.device("cuda"):
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
    embedding, head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY)
    model = nn.ModuleList([embedding, nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False), head])
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
mask = nn.Transformer.generate_square_subsequent_mask(LENGTH, device="cuda")
for step in range(STEPS):
    tokens = torch.randint(VOCABULARY, (BATCH, LENGTH + 1), device="cuda")
    logits = head(model[1](embedding(tokens[:, :-1]), mask=mask, is_causal=True))
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.3f}", flush=True)
