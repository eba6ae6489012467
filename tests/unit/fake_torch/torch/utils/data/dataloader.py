# SPDX-License-Identifier: Apache-2.0
# The shape of torch's DataLoader that the shim relies on: __iter__ on the loader, __next__ on the base of its iterators,
# which are kept where workers persist.


class IterableDataset:
    pass


class _BaseDataLoaderIter:
    def __init__(self, loader):
        self._reset(loader)

    def _reset(self, loader):
        self.source = iter(loader.dataset)

    def __iter__(self):
        return self

    def __next__(self):
        return self._next_data()


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    def _next_data(self):
        return next(self.source)


class DataLoader:
    def __init__(self, dataset, persistent_workers=False):
        self.dataset, self.persistent_workers, self._iterator = dataset, persistent_workers, None

    def __len__(self):
        return len(self.dataset)

    def __iter__(self):
        if not self.persistent_workers:
            return _SingleProcessDataLoaderIter(self)
        if self._iterator is None:
            self._iterator = _SingleProcessDataLoaderIter(self)
        else:
            self._iterator._reset(self)
        return self._iterator
