# SPDX-License-Identifier: Apache-2.0
# Shortened epochs: a DataLoader's iteration ends after a few batches, so that validation, checkpointing and the next epoch are
# reached soon, and the largest of the batches that were looked at comes early, so that variable lengths show their worst.
import collections
import time

from . import record, tracer

# Batches come in their own order but for the largest, which comes after this many others: on a GPU it never finds an empty cache
# either, and does not fit the blocks that smaller ones have left.
BEFORE_LARGEST = 2
# Shapes that should be among the first batches, if there are as many: from their sizes follow those of others (estimator/allocator/steps.h).
DIFFERENT, SOON = 3, 4
# Batches that are looked at ahead. It ends early where all of this many are alike, where it costs too much time or too much host memory.
# Whole numbers are words more often than not, whose batches differ now and then: more of them are looked at if that takes no time.
LOOK_AHEAD = 48
ALIKE = 4
ALIKE_INTEGERS, ALIKE_SECONDS = 16, 0.1
LOOK_SECONDS = 1.5
LOOK_BYTES = 512 << 20
# Of a batch with more tensors than this no shapes are recorded.
MOST_SHAPES = 64
# An epoch that trains goes on until the optimizer has stepped twice (gradient accumulation), up to this many batches.
MOST_BATCHES = 128

_torch = None
_current = None          # the iteration whose batch is in use
_loaders = {}            # id(DataLoader) -> number, for notes
_notes = {}              # number -> (batches given, batches there are or None)
_varying = set()         # numbers of those whose batches have several shapes: which batch comes when is recorded for them
_marks = 0               # batches marked among the allocator's events
_trained_epochs = 0      # shortened iterations that ended with optimizer steps in them
_shortened_training = False
_steps_after = 0         # optimizer steps since the first of those ended


def start(torch):
    """Patches torch.utils.data.DataLoader. `torch` is the package."""
    global _torch
    _torch = torch
    if record.setting("GPUMEM_SHIM_EPOCH_BATCHES", 6) <= 0:
        return
    from torch.utils.data import dataloader

    base, original_iter = dataloader._BaseDataLoaderIter, dataloader.DataLoader.__iter__
    original_next = base.__next__

    def __iter__(self):
        iterator = original_iter(self)
        try:
            # Persistent workers keep their iterator: each __iter__ begins a new epoch on it.
            iterator.__dict__.pop("_gpumem_epoch", None)
            epoch = _begin(self, original_next)
            if epoch is not None:
                iterator._gpumem_epoch = epoch
        except Exception:
            pass
        return iterator

    def __next__(self):
        epoch = self.__dict__.get("_gpumem_epoch")
        return original_next(self) if epoch is None else epoch.next(self)

    dataloader.DataLoader.__iter__ = __iter__
    base.__next__ = __next__


def stepped():
    """An optimizer has stepped."""
    global _shortened_training, _steps_after
    if _trained_epochs:
        _steps_after += 1
    if _current is not None and not _current.done:
        _current.steps += 1
        _shortened_training = True


def whole_epoch_seen():
    """True unless training runs over a shortened epoch whose end, and what follows it, has not been reached."""
    return not _shortened_training or (_trained_epochs > 0 and _steps_after > 0)


def write_notes():
    alike = collections.Counter(_notes.values())
    for (given, total), loaders in sorted(alike.items(), key=str):
        whose = "a DataLoader" if loaders == 1 else "%d DataLoaders" % loaders
        of = "" if total is None else " of %d" % total
        record.note("epoch", "epochs of %s were shortened to %d%s batches" % (whose, given, of), batches=given, total=total, loaders=loaders)
    _notes.clear()


def _begin(loader, original_next):
    if _torch.utils.data.get_worker_info() is not None:
        return None
    limit = record.setting("GPUMEM_SHIM_EPOCH_BATCHES", 6)
    total = None
    if not isinstance(loader.dataset, _torch.utils.data.IterableDataset):  # those remember being asked, and warn
        try:
            total = len(loader)
        except Exception:
            pass
    if total is not None and total <= limit:
        return None
    first_time = id(loader) not in _loaders
    number = _loaders.setdefault(id(loader), len(_loaders) + 1)
    ahead = record.setting("GPUMEM_SHIM_LOOKAHEAD", LOOK_AHEAD) if first_time else 1
    return _Epoch(number, total, limit, ahead, original_next)


class _Epoch:
    def __init__(self, number, total, limit, ahead, original_next):
        self.number, self.total, self.limit, self.ahead = number, total, limit, ahead
        self.before_largest = record.setting("GPUMEM_SHIM_BEFORE_LARGEST", BEFORE_LARGEST)
        self.original_next = original_next
        self.batches = collections.deque()  # looked at and not yet given: (batch, its shapes)
        self.kinds, self.on_device, self.floats = [], False, False  # shapes of the batches so far
        self.marked = []  # (mark, shapes) that are written once it is known that batches differ
        self.given = 0
        self.steps = 0
        self.done = False
        self.nodes = _graph_nodes()

    def next(self, iterator):
        global _current
        if self.done:
            raise StopIteration
        _current = self
        if self.given >= self.limit and (self.total is None or self.given < self.total) and self._may_end():
            self._end()
            _notes.setdefault(self.number, (self.given, self.total))
            raise StopIteration
        if self.given == self.before_largest and self.ahead > 1 and not self.on_device:
            self._look_ahead(iterator)
        kind = None
        if self.batches:
            batch, kind = self.batches.popleft()
        else:
            try:
                batch = self.original_next(iterator)
            except StopIteration:
                self._end()
                raise
            if self.given < self.before_largest and self.ahead > 1:
                self._look_at(batch)
                kind = self.kinds[-1]
        self.given += 1
        self._mark(batch, kind)
        return batch

    def _mark(self, batch, kind):
        """Says among the allocator's events that this batch comes now (None: none any more), as long as batches may differ."""
        global _marks
        if self.number not in _varying and (self.ahead <= 1 or self.given > self.before_largest):
            return
        if kind is None and batch is not None:
            found = []
            _shapes(batch, found, 0)
            kind = tuple(shape for _, shape, _ in found)
        _marks += 1
        tracer.mark_batch(_marks)
        self.marked.append((_marks, kind))
        self._write_marked()

    def _write_marked(self):
        if self.number in _varying:
            for mark, kind in self.marked:
                record.write("batch", n=mark, loader=self.number, shapes=kind)
            self.marked.clear()

    def _end(self):
        global _trained_epochs
        self.done = True
        self.batches.clear()
        if self.number in _varying:
            self._mark(None, None)
        if self.steps:
            _trained_epochs += 1

    def _look_at(self, batch):
        """The batch's bytes."""
        shapes = []
        self.on_device = _shapes(batch, shapes, 0) or self.on_device
        self.floats = self.floats or any(floating for _, _, floating in shapes)
        self.kinds.append(tuple(shape for _, shape, _ in shapes))
        return sum(size for size, _, _ in shapes)

    def _look_ahead(self, iterator):
        """Collates the next batches, at most `ahead`, and puts them into the order in which they are given."""
        sizes, held, began = [], 0, time.monotonic()
        while len(self.batches) < self.ahead:
            try:
                batch = self.original_next(iterator)
            except StopIteration:
                break
            sizes.append(self._look_at(batch))
            self.batches.append((batch, self.kinds[-1]))
            held += sizes[-1]
            if self.on_device or held > LOOK_BYTES or time.monotonic() - began > LOOK_SECONDS:
                break
            more = not self.floats and time.monotonic() - began < ALIKE_SECONDS
            if len(self.kinds) >= (ALIKE_INTEGERS if more else ALIKE) and len(set(self.kinds)) == 1:
                break
        if sizes:
            self._order(sizes)
        if len(set(self.kinds)) > 1 and max(map(len, self.kinds)) <= MOST_SHAPES:
            _varying.add(self.number)
            record.write("batches", loader=self.number, shapes=self.kinds)
            self._write_marked()

    def _order(self, sizes):
        """The largest first; then, where too few shapes would come soon, the middle one of those that have not come."""
        front = [sizes.index(max(sizes))]
        order = front + [index for index in range(len(sizes)) if index not in front]
        soon = self.kinds[:self.given] + [self.batches[index][1] for index in order]
        if len(set(soon[:SOON])) < DIFFERENT:
            known = {*self.kinds[:self.given], self.batches[front[0]][1]}
            while len(known) < DIFFERENT:
                others = sorted((sizes[index], index) for index in order if self.batches[index][1] not in known)
                if not others:
                    break
                front.append(others[len(others) // 2][1])
                known.add(self.batches[front[-1]][1])
            order = front + [index for index in range(len(sizes)) if index not in front]
        self.batches = collections.deque(self.batches[index] for index in order)

    def _may_end(self):
        # No autograd graph is built, or was since the epoch began: this is validation. Functions of the program's own and DataParallel
        # count as nodes of one even where none is built.
        if self.nodes is None or _graph_nodes() == self.nodes or not _torch.is_grad_enabled():
            return True
        return self.steps >= 2 or self.given >= MOST_BATCHES


def _graph_nodes():
    try:
        return _torch._C._autograd._get_sequence_nr()
    except Exception:
        return None


def _shapes(value, found, depth):
    """Adds (bytes, shape, whether of floating point) of the tensors in a batch; True if any is on a device, where looking ahead would cost its memory."""
    if depth > 4:
        return False
    if isinstance(value, _torch.Tensor):
        try:
            floating = value.is_floating_point() if hasattr(value, "is_floating_point") else True
            found.append((value.numel() * value.element_size(), tuple(value.shape), floating))
            return value.is_cuda
        except Exception:  # sparse, nested
            return False
    if isinstance(value, (str, bytes, int, float)) or value is None:
        return False
    if hasattr(value, "values") and hasattr(value, "keys"):
        return any([_shapes(v, found, depth + 1) for v in value.values()])
    if isinstance(value, (list, tuple, set)):
        return any([_shapes(v, found, depth + 1) for v in value])
    if hasattr(value, "__dict__"):
        return any([_shapes(v, found, depth + 1) for v in vars(value).values()])
    return False
