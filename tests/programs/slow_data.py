# SPDX-License-Identifier: Apache-2.0
# What: batches come in their own order but for the largest, which is third; data that is slow to make is not looked at far ahead.
# early end
# quick
# expect: note "epochs of 4 DataLoaders were shortened to 6 of 100 batches"
import time

import torch


class Lines(torch.utils.data.Dataset):
    taken = 0

    def __init__(self, lengths, seconds):
        self.lengths, self.seconds = lengths, seconds

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        Lines.taken += 1
        time.sleep(self.seconds)
        return torch.full((self.lengths[i],), i)


def epoch(lengths, seconds):
    Lines.taken = 0
    return [int(batch[0, 0]) for batch in torch.utils.data.DataLoader(Lines(lengths, seconds))]


torch.zeros(1, device="cuda")
lengths = [7, 3, 5, 2, 9, 4, 8, 6] + [5, 4] * 46
assert epoch(lengths, 0) == [0, 1, 4, 2, 3, 5], epoch(lengths, 0)
assert Lines.taken <= 50, Lines.taken
assert epoch(lengths, 0.7)[:2] == [0, 1] and Lines.taken <= 8, Lines.taken
assert epoch([5] * 100, 0) == [0, 1, 2, 3, 4, 5] and Lines.taken <= 18, Lines.taken
assert epoch([5] * 100, 0.3) == [0, 1, 2, 3, 4, 5] and Lines.taken <= 7, Lines.taken
print("ok")
