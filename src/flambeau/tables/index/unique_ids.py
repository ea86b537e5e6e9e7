"""The distinct ids of a batch, and which of some ids are among others, by hashing."""

from typing import Any, final

import numpy as np

from flambeau.kernels.compiled import inlined, kernel, prefetch
from flambeau.kernels.mixing import mix
from flambeau.tables.index.ids import Ids
from flambeau.tables.row_kernels import later

Array = np.ndarray[Any, Any]

_HALF, _LOWER = np.int64(32), np.int64((1 << 32) - 1)
#: Marks are the upper half of a slot.
_LAST_MARK = (1 << 31) - 1


@final
class Slots:
    """A hash table of numbers, empty whenever it is asked for.

    A slot holds a number under the mark of whom it belongs to; under any other it is empty.
    """

    def __init__(self) -> None:
        self._slots = np.empty(0, np.int64)
        self._mark = 0

    def empty(self, numbers: int) -> tuple[Array, int, int]:
        """The slots for so many numbers, their address, and a mark that none of them has."""
        size = 1 << max(4, (2 * numbers).bit_length())
        if size > self._slots.size or self._mark == _LAST_MARK:
            self._slots, self._mark = np.zeros(max(size, self._slots.size), np.int64), 0
        self._mark += 1
        return self._slots, self._slots.ctypes.data, self._mark


@final
class Fold:
    """Finds the distinct ids of batches, reusing its scratch memory from batch to batch."""

    def __init__(self) -> None:
        self._slots = Slots()

    def __call__(self, ids: Ids) -> tuple[Ids, np.ndarray[Any, np.dtype[np.int32]]]:
        """The distinct ids in order of appearance, and for each id the number of its like."""
        unique, inverse = np.empty(ids.size, np.int64), np.empty(ids.size, np.int32)
        count = _fold(ids, unique, inverse, *self._slots.empty(ids.size))
        return unique[:count], inverse


@kernel
def _fold(ids: Any, unique: Any, inverse: Any, slots: Any, address: int, mark: int) -> Any:
    """Number the distinct ids by first appearance; how many there are."""
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
    """Where in `ids` those are that are among the distinct `others`; how many there are."""
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
    """The slot with the number of `wanted` in `known`, or the empty one where it would go."""
    position = mix(wanted) & mask
    while slots[position] >> _HALF == mark and known[slots[position] & _LOWER] != wanted:
        position = (position + np.uint64(1)) & mask
    return position


@inlined
def _prefetch_slot(wanted: Any, mask: Any, address: Any) -> Any:
    """Ask for the memory where the search will begin."""
    prefetch(address + np.int64(mix(wanted) & mask) * 8)
