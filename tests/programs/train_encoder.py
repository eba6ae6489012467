# SPDX-License-Identifier: Apache-2.0
# What: PyTorch's own Transformer and a bidirectional LSTM over padded batches from a DataLoader with workers and pinned memory.
# quick
import math

import torch
from torch.utils.data import DataLoader, Dataset


class Sentences(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.arange(1, 9 + index % 24), index % 5


def collate(pairs):
    lines = torch.nn.utils.rnn.pad_sequence([line for line, _ in pairs], batch_first=True)
    return lines, torch.tensor([len(line) for line, _ in pairs]), torch.tensor([label for _, label in pairs])


class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(100, 128, padding_idx=0)
        layer = torch.nn.TransformerEncoderLayer(128, 4, 256, batch_first=True, norm_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.lstm = torch.nn.LSTM(128, 64, 2, batch_first=True, bidirectional=True, dropout=0.1)
        self.head = torch.nn.Linear(128, 5)

    def forward(self, lines, lengths):
        hidden = self.encoder(self.words(lines), src_key_padding_mask=lines == 0)
        packed = torch.nn.utils.rnn.pack_padded_sequence(hidden, lengths, batch_first=True, enforce_sorted=False)
        _, (last, _) = self.lstm(packed)
        return self.head(torch.cat([last[-2], last[-1]], -1))


def main():
    model = Classifier().cuda()
    optimizer = torch.optim.Adam(model.parameters())
    loader = DataLoader(Sentences(), 16, num_workers=2, collate_fn=collate, pin_memory=True)
    seen = 0
    for epoch in range(2):
        for lines, lengths, labels in loader:
            output = model(lines.cuda(non_blocking=True), lengths)
            loss = torch.nn.functional.cross_entropy(output, labels.cuda(non_blocking=True), label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += labels.numel()
    assert seen == 128, seen
    assert math.isfinite(loss.item()) and loss.item() != 0, loss
    assert optimizer.state[model.head.weight]["step"].item() == 8
    model.eval()
    with torch.no_grad():
        right = (model(lines.cuda(), lengths).argmax(-1) == labels.cuda()).sum().item()
    assert 0 <= right <= labels.numel(), right
    print("ok", seen)


if __name__ == "__main__":
    main()
