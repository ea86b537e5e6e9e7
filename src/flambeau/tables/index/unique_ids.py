"""The distinct ids of a batch, and the positions of ids among others, by hashing."""

from typing import Any, final

import numpy as np

from flambeau.kernels.compiled import inlined, kernel, prefetch
from flambeau.kernels.mixing import mix
from flambeau.tables.index.ids import Ids
from flambeau.tables.row_kernels import later

Array = np.ndarray[Any, Any]

_HALF, _LOWER = np.int64(32), np.int64((1 << 32) - 1)
#: Largest mark: marks are the upper half of a slot.
_LAST_MARK = (1 << 31) - 1


@final
class Slots:
    """Scratch memory for a hash table of numbers, which is cleared in constant time.

    The upper half of a slot is the mark of the hash table that filled it, the lower half the
    number. Slots with any other mark count as empty.
    """

    def __init__(self) -> None:
        self._slots = np.empty(0, np.int64)
        self._mark = 0

    def empty(self, numbers: int) -> tuple[Array, int, int]:
        """Return slots for `numbers` numbers, their address, and a mark that no slot has yet."""
        size = 1 << max(4, (2 * numbers).bit_length())
        if size > self._slots.size or self._mark == _LAST_MARK:
            self._slots, self._mark = np.zeros(max(size, self._slots.size), np.int64), 0
        self._mark += 1
        return self._slots, self._slots.ctypes.data, self._mark


@final
class Fold:
    """Finder of the distinct ids of batches, which reuses its scratch memory."""

    def __init__(self) -> None:
        self._slots = Slots()

    def __call__(self, ids: Ids) -> tuple[Ids, np.ndarray[Any, np.dtype[np.int32]]]:
        """Return the distinct ids in order of appearance, and each id's position among them."""
        unique, inverse = np.empty(ids.size, np.int64), np.empty(ids.size, np.int32)
        count = _fold(ids, unique, inverse, *self._slots.empty(ids.size))
        return unique[:count], inverse


@kernel
def _fold(ids: Any, unique: Any, inverse: Any, slots: Any, address: int, mark: int) -> Any:
    """Number the distinct ids by first appearance; return how many there are."""
    mask = np.uint64(slots.size - 1)
    count = np.int64(0)
    for i in range(ids.size):
        _prefetch_slot(later(ids, i), mask, address)
        position = _find(ids[i], unique, slots, mask, mark)
        if slots[position] >> _HALF != mark:
            slots[position] = mark << _HALF | count
            unique[count] = ids[i]
            count += 1
        inverse[i] = slots[position] & _LOWER
    return count


@kernel
def places_among(ids: Any, others: Any, places: Any, slots: Any, address: int, mark: int) -> Any:
    """Write the positions in `ids` of ids among the distinct `others`; return their number."""
    mask = np.uint64(slots.size - 1)
    for i in range(others.size):
        _prefetch_slot(later(others, i), mask, address)
        position = _find(others[i], others, slots, mask, mark)
        slots[position] = mark << _HALF | i
    count = 0
    for i in range(ids.size):
        _prefetch_slot(later(ids, i), mask, address)
        position = _find(ids[i], others, slots, mask, mark)
        places[count] = i
        count += slots[position] >> _HALF == mark
    return count


@inlined
def _find(wanted: Any, known: Any, slots: Any, mask: Any, mark: Any) -> Any:
    """Return the slot of `wanted` in `known`, or the empty slot where it would be inserted."""
    position = mix(wanted) & mask
    while slots[position] >> _HALF == mark and known[slots[position] & _LOWER] != wanted:
        position = (position + np.uint64(1)) & mask
    return position


@inlined
def _prefetch_slot(wanted: Any, mask: Any, address: Any) -> Any:
    """Prefetch the memory where the search will begin."""
    prefetch(address + np.int64(mix(wanted) & mask) * 8)
