# SPDX-License-Identifier: Apache-2.0
# What: DataLoader workers (fork and spawn), pinned memory, collate functions, tensors shared from workers.
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, WeightedRandomSampler


class Lines(Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, i):
        length = 5 + i % 7
        return torch.full((length,), i, dtype=torch.long), i % 3


class Stream(IterableDataset):
    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        start, step = (info.id, info.num_workers) if info else (0, 1)
        for i in range(start, 20, step):
            yield torch.full((4,), float(i))


def pad(items):
    tokens, labels = zip(*items)
    return torch.nn.utils.rnn.pad_sequence(tokens, batch_first=True, padding_value=-1), torch.tensor(labels)


def main():
    device = "cuda"
    model = torch.nn.Sequential(torch.nn.Embedding(64, 16), torch.nn.Linear(16, 3)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for options in ({"num_workers": 2, "persistent_workers": True}, {"num_workers": 1, "multiprocessing_context": "spawn"}, {"num_workers": 0}):
        loader = DataLoader(Lines(), batch_size=8, shuffle=True, collate_fn=pad, pin_memory=True, drop_last=True, **options)
        assert len(loader) == 6
        for epoch in range(2 if "persistent_workers" in options else 1):
            seen = 0
            for tokens, labels in loader:
                assert tokens.is_pinned() and labels.is_pinned()
                tokens, labels = tokens.to(device, non_blocking=True), labels.to(device, non_blocking=True)
                mask = tokens >= 0
                assert 5 <= int(mask.sum(1).min()) <= int(mask.sum(1).max()) <= 11
                out = (model(tokens.clamp_min(0)) * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True)
                loss = torch.nn.functional.cross_entropy(out, labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                assert loss.item() > 0
                seen += len(labels)
            assert seen > 0
    total = sum(float(batch.to(device).sum()) for batch in DataLoader(Stream(), batch_size=5, num_workers=2, pin_memory=True))
    assert total == 4 * sum(range(20)), total
    sampler = WeightedRandomSampler([1.0] * 48, 16)
    assert sum(len(labels) for _, labels in DataLoader(Lines(), batch_size=4, sampler=sampler, collate_fn=pad)) == 16
    print("ok")


if __name__ == "__main__":
    main()
