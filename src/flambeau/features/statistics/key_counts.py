"""Counts of 64-bit keys."""

from typing import Any, final

import numpy as np

from flambeau.features.keys import Keys
from flambeau.kernels.compiled import AHEAD, inlined, kernel, prefetch
from flambeau.kernels.mixing import mix

_FIRST_CAPACITY = 64

Array = np.ndarray[Any, Any]


@final
class KeyCounts:
    """Counts of keys, in a hash table that doubles when it is 60 % full.

    A slot is a key and its count, side by side; a count of 0 marks an empty slot.
    """

    def __init__(self) -> None:
        self._slots = np.zeros(2 * _FIRST_CAPACITY, np.int64)
        self._used = 0

    def __len__(self) -> int:
        return self._used

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it holds."""
        return self._slots.nbytes

    def add(self, keys: Keys) -> Array:
        """Count keys; return a mask (bool) of those that occur for the first time."""
        new = np.zeros(keys.size, np.bool_)
        done = 0
        while True:
            done, self._used = _count(
                keys, done, self._slots, self._slots.ctypes.data, self._used, new
            )
            if done == keys.size:
                return new
            grown = np.zeros(2 * self._slots.size, np.int64)
            _copy(self._slots, grown)
            self._slots = grown

    def counts_of(self, keys: Keys) -> Array:
        """Return the count of each key (int64), 0 for keys that do not occur."""
        counts = np.empty(keys.size, np.int64)
        _find(keys, self._slots, counts)
        return counts

    def entries(self) -> tuple[Keys, Array]:
        """Return all keys and their counts."""
        keys, counts = np.empty(self._used, np.int64), np.empty(self._used, np.int64)
        _entries(self._slots, keys, counts)
        return keys, counts


@inlined
def _slot_of(key: Any, slots: Any) -> Any:
    """Return the slot of a key, or the empty one where it belongs."""
    mask = np.uint64(slots.size // 2 - 1)
    slot = (mix(key) >> np.uint64(20)) & mask
    while slots[2 * slot + np.uint64(1)] and slots[2 * slot] != key:
        slot = (slot + np.uint64(1)) & mask
    return slot


@kernel
def _count(keys: Any, start: int, slots: Any, address: int, used: int, new: Any) -> Any:
    """Count keys from `start` until one has no room; return its index, and the slots used."""
    capacity = slots.size // 2
    mask = np.uint64(capacity - 1)
    for i in range(start, keys.size):
        if i + AHEAD < keys.size:
            ahead = (mix(keys[i + AHEAD]) >> np.uint64(20)) & mask
            prefetch(address + np.int64(ahead) * 16)
        slot = _slot_of(keys[i], slots)
        if not slots[2 * slot + np.uint64(1)]:
            if 10 * (used + 1) > 6 * capacity:
                return i, used
            slots[2 * slot] = keys[i]
            new[i] = True
            used += 1
        slots[2 * slot + np.uint64(1)] += 1
    return keys.size, used


@kernel
def _copy(slots: Any, grown: Any) -> None:
    """Copy the entries of a table into a larger, empty one."""
    for i in range(slots.size // 2):
        if slots[2 * i + 1]:
            slot = _slot_of(slots[2 * i], grown)
            grown[2 * slot] = slots[2 * i]
            grown[2 * slot + np.uint64(1)] = slots[2 * i + 1]


@kernel
def _find(keys: Any, slots: Any, counts: Any) -> None:
    for i in range(keys.size):
        slot = _slot_of(keys[i], slots)
        counts[i] = slots[2 * slot + np.uint64(1)]


@kernel
def _entries(slots: Any, keys: Any, counts: Any) -> None:
    found = 0
    for i in range(slots.size // 2):
        if slots[2 * i + 1]:
            keys[found] = slots[2 * i]
            counts[found] = slots[2 * i + 1]
            found += 1
