# SPDX-License-Identifier: Apache-2.0
# `gpumem estimate --batch-percent`: what would a smaller batch need? DataLoaders' samplers yield fewer indices a batch.
import functools

from . import record

_seen = False
_percent = 100


def start(torch):
    global _percent
    _percent = record.setting("GPUMEM_SHIM_BATCH_PERCENT", 100)
    if not 0 < _percent < 100:
        return
    sampler = torch.utils.data.BatchSampler
    original = sampler.__iter__

    @functools.wraps(original)
    def smaller(self):
        global _seen
        for batch in original(self):
            whole = len(batch)
            kept = max(1, whole * _percent // 100)
            if not _seen:
                _seen = True
                record.note("batch", "batches were cut to %d of %d samples (--batch-percent %d)" % (kept, whole, _percent))
            yield batch[:kept]

    sampler.__iter__ = smaller


def write_notes():
    if 0 < _percent < 100 and not _seen:
        record.note("batch", "no batch was made smaller: the program takes none from a DataLoader with a batch size")
