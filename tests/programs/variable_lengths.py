# SPDX-License-Identifier: Apache-2.0
# What: batches of different lengths: other orders than the one that was run are replayed, and one of them is what this very order comes to.
# needs: torch>=2.2
# quick
# early end
# expect: note "batches have different sizes: in 128 orders of 4 batches PyTorch reserves"
# expect: no-note "only the order that was run"
# expect: that e["orders"]["lowest_bytes"] <= e["orders"]["middle_bytes"] == e["peak_reserved_bytes"] <= e["orders"]["highest_bytes"]
# expect: that e["orders"]["lowest_bytes"] <= e["orders"]["as_run_bytes"] <= max(e["need_bytes"] - e["context_bytes"], e["orders"]["highest_bytes"])
# expect: that e["orders"]["shapes"] == e["orders"]["shapes_looked_at"] > 10 and e["orders"]["out_of_memory"] == 0
# expect: that e["orders"]["highest_bytes"] > 1.1 * e["orders"]["lowest_bytes"] and e["minimum_need_bytes"] <= e["need_bytes"] - (e["proof"]["result"] != "proven")
# A transformer over lines that are padded to the longest of their batch; each batch is fetched while the one before is still in use.
import random

import torch
from torch.utils.data import DataLoader, Dataset


class Lines(Dataset):
    def __init__(self):
        draw = random.Random(0)
        self.lengths = [draw.randint(20, 200) for _ in range(4000)]

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        return torch.randint(0, 5000, (self.lengths[index],))


def collate(lines):
    return torch.nn.utils.rnn.pad_sequence(lines, batch_first=True)


def one_ahead(loader):
    batches = iter(loader)
    batch = next(batches)
    for following in batches:
        yield batch
        batch = following


def main():
    torch.manual_seed(0)
    embedding, head = torch.nn.Embedding(5000, 256).cuda(), torch.nn.Linear(256, 5000).cuda()
    encoder = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True), 3).cuda()
    optimizer = torch.optim.AdamW([*embedding.parameters(), *encoder.parameters(), *head.parameters()])
    trained = set()
    for number, lines in enumerate(one_ahead(DataLoader(Lines(), 8, shuffle=True, collate_fn=collate)), 1):
        lines = lines.cuda()
        trained.add(tuple(lines.shape))
        loss = torch.nn.functional.cross_entropy(head(encoder(embedding(lines))).flatten(0, 1), lines.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if number == 4:
            break
    assert len(trained) > 1, trained


if __name__ == "__main__":
    main()
