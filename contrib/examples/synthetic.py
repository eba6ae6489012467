# SPDX-License-Identifier: Apache-2.0
"""Data for the examples: random, and as slow to read as files from a busy server."""
import time

import torch
from torch.utils.data import Dataset


class Images(Dataset):
    """Random images with a label each."""

    def __init__(self, count, size, classes, read_seconds=0.003):
        self.count, self.size, self.classes, self.read_seconds = count, size, classes, read_seconds

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        time.sleep(self.read_seconds)
        image = torch.empty(3, self.size, self.size).uniform_(-1, 1)
        return image, index % self.classes


class Masks(Images):
    """Random images with a class for every pixel."""

    def __getitem__(self, index):
        image, _ = super().__getitem__(index)
        return image, torch.full((self.size, self.size), index % self.classes)


class Tokens(Dataset):
    """Random sequences of tokens."""

    def __init__(self, count, length, vocabulary, read_seconds=0.01):
        self.count, self.length, self.vocabulary, self.read_seconds = count, length, vocabulary, read_seconds

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        time.sleep(self.read_seconds)
        return torch.randint(self.vocabulary, (self.length + 1,))
