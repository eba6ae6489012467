# SPDX-License-Identifier: Apache-2.0
from .dataloader import DataLoader, IterableDataset  # noqa: F401


def get_worker_info():
    return None
