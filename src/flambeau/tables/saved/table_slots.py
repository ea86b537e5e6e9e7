"""The hash index of a table file: positions of rows, by open addressing with linear probing."""

from typing import Any

from flambeau.kernels.compiled import kernel
from flambeau.kernels.mixing import mix
from flambeau.tables.index.index_kernels import EMPTY, place
from flambeau.tables.saved.checksums import BLOCK

#: The most rows whose positions fit into an int32.
MOST_ROWS = 2**31 - 1

_SHIFT = BLOCK.bit_length() - 1


def capacity_for(rows: int) -> int:
    """Return the number of slots for `rows` rows.

    Half of them are empty, since every probe may read a page from the disk.
    """
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
def find(
    wanted: Any,
    ids: Any,
    slots: Any,
    out: Any,
    firsts: tuple[int, int],
    marks: Any,
    fresh: Any,
) -> int:
    """Write the position of each wanted id into `out`, -1 for none; return -1 if slots are corrupt.

    `firsts` are the first blocks of ids and slots in `marks`. Blocks without a mark are written
    into `fresh`, and their number is returned; `out` is valid only if it is 0.
    """
    count = 0
    for i in range(wanted.size):
        position = place(mix(wanted[i]), slots.size)
        left = slots.size
        while True:
            # There must be room for the slot's block and for the row's.
            if count + 2 > fresh.size:
                return count
            block = firsts[1] + (position * 4 >> _SHIFT)
            if not marks[block]:
                fresh[count] = block
                count += 1
            row = slots[position]
            if row == EMPTY:
                break
            left -= 1
            if row < 0 or row >= ids.size or left == 0:
                return count if count else -1
            block = firsts[0] + (row * 8 >> _SHIFT)
            if not marks[block]:
                fresh[count] = block
                count += 1
            if ids[row] == wanted[i]:
                break
            position += 1
            if position == slots.size:
                position = 0
        out[i] = slots[position]
    return count
