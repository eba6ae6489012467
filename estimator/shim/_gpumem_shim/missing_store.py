# SPDX-License-Identifier: Apache-2.0
# The rendezvous store of a rank whose others are missing: it answers for them (missing_ranks.py, Note [Missing ranks]).
# PyTorch's C++ calls it too, from threads of its own.
import re
import threading

# A 128-byte id of NCCL, should a missing rank have had to make it.
_ID = b"\0" * 128
_SIGNALS = re.compile("abort|dump|error|exception|timeout", re.IGNORECASE)


def make(dist, rank, world):
    class Store(dist.Store):
        """Keys that only the missing ranks would have set are there when they are asked for."""

        def __init__(self):
            super().__init__()
            self.rank, self.world = rank, world
            self.values, self.lock = {}, threading.RLock()

        def set(self, key, value):
            with self.lock:
                self.values[_text(key)] = _bytes(value)

        def get(self, key):
            with self.lock:
                key = _text(key)
                if key in self.values:
                    return self.values[key]
                if _SIGNALS.search(key):
                    raise RuntimeError("Wait timeout: %s (no rank has set it)" % key)
                return self.answer(key)

        def answer(self, key):
            # "…/rank3" is what "…/rank0" is to us.
            for number in re.finditer("[0-9]+", key):
                ours = self.values.get(key[: number.start()] + str(self.rank) + key[number.end():])
                if ours is not None:
                    return ours
            return _ID

        def add(self, key, amount):
            with self.lock:
                key = _text(key)
                value = int(self.values.get(key, b"0")) + amount * (self.world if amount > 0 else 1)
                self.values[key] = str(value).encode()
                return value

        def compare_set(self, key, expected, desired):
            with self.lock:
                key = _text(key)
                value = self.values.get(key)
                if value is None and not expected or value == _bytes(expected):
                    self.values[key] = value = _bytes(desired)
                return value if value is not None else _bytes(expected)

        def wait(self, keys, timeout=None):
            with self.lock:
                for key in keys:
                    if _text(key) not in self.values and _SIGNALS.search(_text(key)):
                        raise RuntimeError("Wait timeout: %s (no rank has set it)" % key)

        def check(self, keys):
            with self.lock:
                return all(_text(key) in self.values for key in keys)

        def delete_key(self, key):
            with self.lock:
                return self.values.pop(_text(key), None) is not None

        def num_keys(self):
            return len(self.values)

        def list_keys(self):
            with self.lock:
                return list(self.values)

        def append(self, key, value):
            with self.lock:
                self.values[_text(key)] = self.values.get(_text(key), b"") + _bytes(value)

        def multi_get(self, keys):
            return [self.get(key) for key in keys]

        def multi_set(self, keys, values):
            for key, value in zip(keys, values):
                self.set(key, value)

        def has_extended_api(self):
            return True

        def clone(self):
            return self

    return Store()


def _text(key):
    return key if isinstance(key, str) else bytes(key).decode("utf-8", "replace")


def _bytes(value):
    return value.encode() if isinstance(value, str) else bytes(value)
