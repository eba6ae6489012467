# SPDX-License-Identifier: Apache-2.0
# What: epochs of a DataLoader with workers are shortened, the largest batch early, validation and a checkpoint reached.
# early end
# arguments: 2
# expect: note "shortened to 8 of 2000 batches"
# expect: output "^epoch 0 largest early True batches 8$"
# expect: output "^validated True$"
# expect: that e["stopped_early"] and e["steps"] >= 8
# Run by 0155-values.t too. Batches are padded to their longest line, gradients accumulated. Argument: worker processes.
import sys

import torch
from torch.utils.data import DataLoader, Dataset


class Lines(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        return torch.zeros(10 + index * 7919 % 90, 32), index % 10


def collate(lines):
    return torch.nn.utils.rnn.pad_sequence([line for line, _ in lines], batch_first=True), torch.tensor([label for _, label in lines])


def main():
    workers, accumulate = int(sys.argv[1]), 4
    train = DataLoader(Lines(), 2, shuffle=True, num_workers=workers, collate_fn=collate, pin_memory=True, persistent_workers=workers > 0)
    valid = DataLoader(Lines(), 16, collate_fn=collate)
    model = torch.nn.LSTM(32, 256, batch_first=True).cuda()
    head = torch.nn.Linear(256, 10).cuda()
    optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()])
    print("batches", len(train), len(valid))
    for epoch in range(50):
        longest = []
        for number, (lines, labels) in enumerate(train, 1):
            longest.append(lines.shape[1])
            output, _ = model(lines.cuda(non_blocking=True))
            loss = torch.nn.functional.cross_entropy(head(output[:, -1]), labels.cuda(non_blocking=True)) / accumulate
            loss.backward()
            if number % accumulate == 0:
                optimizer.step()
                optimizer.zero_grad()
        print("epoch", epoch, "largest early", max(longest[:3]) == max(longest), "batches", len(longest))
        with torch.no_grad():
            total = sum(torch.nn.functional.cross_entropy(head(model(lines.cuda())[0][:, -1]), labels.cuda()).item() for lines, labels in valid)
        print("validated", total / len(valid) > 0, flush=True)
        torch.save(model.state_dict(), "checkpoint.pt")
    print("end")


if __name__ == "__main__":
    main()
