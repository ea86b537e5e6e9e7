"""Kernel that finds the rows a snapshot has not returned yet."""

from typing import Any

import numpy as np

from flambeau.kernels.compiled import kernel
from flambeau.tables.index.index_kernels import EMPTY, id_in, row_of, slots_of

_ONE = np.uint64(1)
_SIX = np.uint64(6)
_LOW = np.uint64(63)


@kernel
def take_entries(
    part: int,
    parts: int,
    budget: int,
    ids_out: Any,
    rows_out: Any,
    given: Any,
    at: Any,
    capacity: Any,
) -> Any:
    """Write entries from `part` on whose bit in `given` is unset, and set it.

    Ends when the output is full, or earlier after scanning about `budget` entries. Returns (number
    of entries, part to continue with): a part that was not finished is scanned again, because its
    entries may move meanwhile.
    """
    count = 0
    while part < parts and (budget > 0 or count == 0):
        size = capacity[part]
        slots = slots_of(at, capacity, part)
        for position in range(size):
            row = np.uint64(row_of(slots, position))
            if row_of(slots, position) == EMPTY or row >> _SIX >= given.size:
                continue
            bit = _ONE << (row & _LOW)
            if not given[row >> _SIX] & bit:
                if count == ids_out.size:
                    return count, part
                given[row >> _SIX] |= bit
                ids_out[count] = id_in(slots, position)
                rows_out[count] = row_of(slots, position)
                count += 1
        budget -= size
        part += 1
    return count, part
