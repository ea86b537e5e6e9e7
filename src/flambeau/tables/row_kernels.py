"""Moving rows between slabs and batches, and folding a batch's repeated ids into one."""

from typing import Any, final

import numpy as np

from flambeau.kernels.compiled import AHEAD, carray, inlined, kernel, pointer, prefetch
from flambeau.kernels.mixing import mix
from flambeau.tables.ids import Ids

Array = np.ndarray[Any, Any]

_LINE = 64

_HALF, _LOWER = np.int64(32), np.int64((1 << 32) - 1)
#: Marks are the upper half of a slot.
_LAST_MARK = (1 << 31) - 1


@inlined
def address_of(slabs: Any, shift: Any, row: Any, row_bytes: Any) -> Any:
    """Where a row begins. `slabs` and `shift` are a `slabs.Place`.

    Kernels take a place apart before their loops: inside, that would count references each time.
    """
    return slabs[row >> shift] + (row & ((1 << shift) - 1)) * row_bytes


@inlined
def row_in(slabs: Any, shift: Any, row: Any, width: Any, like: Any) -> Any:
    """A row as an array of `width` numbers of the type of `like`."""
    address = address_of(slabs, shift, row, width * like.itemsize)
    return carray(pointer(address), (width,), like.dtype)


@inlined
def later(rows: Any, i: Any) -> Any:
    """The row, or id, whose turn comes some time after the i-th."""
    return rows[min(i + AHEAD, rows.size - 1)]


@inlined
def prefetch_row(slabs: Any, shift: Any, row: Any, row_bytes: Any) -> Any:
    """Ask for the memory of a row, if it is not -1."""
    if row >= 0:
        address = address_of(slabs, shift, row, row_bytes)
        end = address + row_bytes
        while address < end:
            prefetch(address)
            address += _LINE


@kernel
def gather(rows: Any, out: Any, default: Any, place: Any) -> None:
    """`out[i]` becomes row `rows[i]`, or `default` where that is -1. [n, width]"""
    slabs, shift = place
    width = out.shape[1]
    for i in range(rows.size):
        prefetch_row(slabs, shift, later(rows, i), width * out.itemsize)
        source = default if rows[i] < 0 else row_in(slabs, shift, rows[i], width, out)
        for j in range(width):
            out[i, j] = source[j]


@kernel
def scatter(rows: Any, values: Any, place: Any) -> None:
    """Row `rows[i]` becomes `values[i]`; rows of -1 are left out."""
    slabs, shift = place
    width = values.shape[1]
    for i in range(rows.size):
        prefetch_row(slabs, shift, later(rows, i), width * values.itemsize)
        if rows[i] >= 0:
            target = row_in(slabs, shift, rows[i], width, values)
            for j in range(width):
                target[j] = values[i, j]


@kernel
def sum_by(inverse: Any, values: Any, out: Any) -> None:
    """Add `values[i]` to `out[inverse[i]]`."""
    width = values.shape[1]
    for i in range(inverse.size):
        target = inverse[i]
        for j in range(width):
            out[target, j] += values[i, j]


@kernel
def _fold(ids: Any, unique: Any, inverse: Any, slots: Any, address: int, mark: int) -> int:
    """Number the distinct ids by first appearance.

    A slot of the hash table `slots`, which begins at `address`, holds a number under the `mark` of
    this batch; under any other it is empty.
    """
    mask = np.uint64(slots.size - 1)
    count = np.int64(0)
    for i in range(ids.size):
        prefetch(address + np.int64(mix(later(ids, i)) & mask) * slots.itemsize)
        position = mix(ids[i]) & mask
        slot = slots[position]
        while slot >> _HALF == mark and unique[slot & _LOWER] != ids[i]:
            position = (position + np.uint64(1)) & mask
            slot = slots[position]
        if slot >> _HALF != mark:
            slot = mark << _HALF | count
            slots[position] = slot
            unique[count] = ids[i]
            count += 1
        inverse[i] = slot & _LOWER
    return count  # type: ignore[return-value]


@final
class Fold:
    """Finds the distinct ids of batches, reusing its scratch memory from batch to batch."""

    def __init__(self) -> None:
        self._slots = np.empty(0, np.int64)
        self._mark = 0

    def __call__(self, ids: Ids) -> tuple[Ids, np.ndarray[Any, np.dtype[np.int32]]]:
        """The distinct ids in order of appearance, and for each id the number of its like."""
        size = 1 << max(4, (2 * ids.size).bit_length())
        if size > self._slots.size or self._mark == _LAST_MARK:
            self._slots, self._mark = np.zeros(max(size, self._slots.size), np.int64), 0
        self._mark += 1
        unique, inverse = np.empty(ids.size, np.int64), np.empty(ids.size, np.int32)
        slots = self._slots
        count = _fold(ids, unique, inverse, slots, slots.ctypes.data, self._mark)
        return unique[:count], inverse
