"""An index of the places of a vocabulary's keys, filled once and only read afterwards."""

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from flambeau.features.keys import Keys
from flambeau.kernels.compiled import AHEAD, carray, inlined, kernel, pointer, prefetch
from flambeau.kernels.mixing import mix

#: int32 numbers in a slot: two for the key, one for its place.
_SLOT = 3
_HALF = np.uint64(32)

Array = np.ndarray[Any, Any]


@final
class KeyPlaces:
    """The places of at most `size` keys, below 2**31, with 18 bytes for each key."""

    def __init__(self, size: int) -> None:
        capacity = size + size // 2 + 8
        self.slots = np.full(_SLOT * capacity, -1, np.int32)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it holds."""
        return self.slots.nbytes

    def fill(self, keys: Keys, first: int) -> None:
        """Insert keys with the places `first`, `first + 1`, ...; a known key keeps its place."""
        _fill(keys, first, self.slots)

    def find(self, keys: Keys) -> Keys:
        """Return the place of each key (int64), or -1 for unknown keys."""
        places = np.empty(keys.size, np.int64)
        _find(keys, self.slots, self.slots.ctypes.data, places)
        return places


@final
class KeyPlacesGroup:
    """The places of keys of several vocabularies, for lookups of few keys of each in one call."""

    def __init__(self, members: Sequence[KeyPlaces]) -> None:
        self._members = tuple(members)  # these own the memory
        slots = [each.slots for each in members]
        self._at = np.array([each.ctypes.data for each in slots])
        self._sizes = np.array([each.size for each in slots])

    def find(self, keys: Keys) -> Keys:
        """Return the place of each key [vocabularies, keys] in its vocabulary, or -1."""
        places = np.empty(keys.shape, np.int64)
        _find_in_each(keys, self._at, self._sizes, places)
        return places


@inlined
def _home(key: Any, capacity: Any) -> Any:
    """Return the slot where the search for a key begins."""
    return np.int64(((mix(key) >> _HALF) * np.uint64(capacity)) >> _HALF)


@inlined
def _slot_of(key: Any, slots: Any, capacity: Any) -> Any:
    """Return the slot of a key, or the empty one where it belongs."""
    low, high = np.int32(key), np.int32(key >> 32)
    slot = _home(key, capacity)
    while slots[_SLOT * slot + 2] >= 0 and (
        slots[_SLOT * slot] != low or slots[_SLOT * slot + 1] != high
    ):
        slot += 1
        if slot == capacity:
            slot = 0
    return slot


@kernel
def _fill(keys: Any, first: int, slots: Any) -> None:
    capacity = slots.size // _SLOT
    for i in range(keys.size):
        slot = _slot_of(keys[i], slots, capacity)
        if slots[_SLOT * slot + 2] < 0:
            slots[_SLOT * slot] = np.int32(keys[i])
            slots[_SLOT * slot + 1] = np.int32(keys[i] >> 32)
            slots[_SLOT * slot + 2] = np.int32(first + i)


@kernel
def _find(keys: Any, slots: Any, address: int, places: Any) -> None:
    capacity = slots.size // _SLOT
    for i in range(keys.size):
        if i + AHEAD < keys.size:
            prefetch(address + _home(keys[i + AHEAD], capacity) * (4 * _SLOT))
        places[i] = slots[_SLOT * _slot_of(keys[i], slots, capacity) + 2]


@kernel
def _find_in_each(keys: Any, at: Any, sizes: Any, places: Any) -> None:
    for k in range(keys.shape[0]):
        slots = carray(pointer(at[k]), (sizes[k],), np.int32)
        capacity = sizes[k] // _SLOT
        for i in range(keys.shape[1]):
            places[k, i] = slots[_SLOT * _slot_of(keys[k, i], slots, capacity) + 2]
