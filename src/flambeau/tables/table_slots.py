"""The hash index of a table file: positions of rows, by open addressing with linear probing."""

from typing import Any

from flambeau.kernels.compiled import kernel
from flambeau.kernels.mixing import mix
from flambeau.tables.index_kernels import EMPTY, place

#: The most rows whose positions an int32 can hold.
MOST_ROWS = 2**31 - 1


def capacity_for(rows: int) -> int:
    """Slots for so many rows: half are empty, since every probe may read a page from the disk."""
    return 2 * rows + 1


@kernel
def build(ids: Any, slots: Any) -> None:
    """Enter the positions of distinct ids into slots that are all empty."""
    for i in range(ids.size):
        position = place(mix(ids[i]), slots.size)
        while slots[position] != EMPTY:
            position += 1
            if position == slots.size:
                position = 0
        slots[position] = i


@kernel
def find(wanted: Any, ids: Any, slots: Any, out: Any) -> bool:
    """The position of each wanted id into `out`, -1: there is none. False if slots are corrupt."""
    for i in range(wanted.size):
        position = place(mix(wanted[i]), slots.size)
        left = slots.size
        while slots[position] != EMPTY:
            row = slots[position]
            left -= 1
            if row < 0 or row >= ids.size or left == 0:
                return False
            if ids[row] == wanted[i]:
                break
            position += 1
            if position == slots.size:
                position = 0
        out[i] = slots[position]
    return True
