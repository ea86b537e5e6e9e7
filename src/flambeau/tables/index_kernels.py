"""Open addressing with linear probing, over many small sub-tables.

A sub-table is two arrays: ids, and rows (-1: empty; so that every int64 is a legal id). `id_at` and
`row_at` hold their addresses, `capacity` and `used` their sizes.
"""

from typing import Any

import numpy as np

from flambeau.tables.compiled import AHEAD, carray, inlined, kernel, pointer, prefetch
from flambeau.tables.hashing import SUBTABLE_BITS, mix

SUBTABLES = 1 << SUBTABLE_BITS
EMPTY = np.int32(-1)

_MASK = np.uint64(SUBTABLES - 1)
_HALF = np.uint64(32)


@inlined
def place(bits: Any, capacity: Any) -> Any:
    """Where the search for a hash begins: its upper half, scaled to the capacity."""
    return np.int64(((bits >> _HALF) * np.uint64(capacity)) >> _HALF)


@inlined
def probe(ids: Any, rows: Any, capacity: Any, wanted: Any, bits: Any) -> Any:
    """The position of an id, or of the empty place where it would go."""
    position = place(bits, capacity)
    while rows[position] != EMPTY and ids[position] != wanted:
        position += 1
        if position == capacity:
            position = 0
    return position


@inlined
def prefetch_place(wanted: Any, i: Any, id_at: Any, row_at: Any, capacity: Any) -> Any:
    """Ask for the memory where the search for `wanted[i]` begins, if there is such an item."""
    if i < wanted.size:
        bits = mix(wanted[i])
        sub = np.int64(bits & _MASK)
        position = place(bits, capacity[sub])
        prefetch(id_at[sub] + position * 8)
        prefetch(row_at[sub] + position * 4)


@kernel
def find(wanted: Any, out: Any, id_at: Any, row_at: Any, capacity: Any) -> None:
    """The row of each id into `out`; -1 for those that are not there."""
    for i in range(AHEAD):
        prefetch_place(wanted, i, id_at, row_at, capacity)
    for i in range(wanted.size):
        prefetch_place(wanted, i + AHEAD, id_at, row_at, capacity)
        bits = mix(wanted[i])
        sub = np.int64(bits & _MASK)
        size = capacity[sub]
        ids = carray(pointer(id_at[sub]), (size,), np.int64)
        rows = carray(pointer(row_at[sub]), (size,), np.int32)
        out[i] = rows[probe(ids, rows, size, wanted[i], bits)]


@kernel
def find_or_insert(
    wanted: Any,
    out: Any,
    is_new: Any,
    start: int,
    id_at: Any,
    row_at: Any,
    capacity: Any,
    used: Any,
    free: Any,
    counts: Any,
) -> Any:
    """The row of each id from `start` on; new ids get a free row.

    `counts` is [next never-used row, number of free rows]. Gives (how far it came, which sub-table
    must grow first), or (all, -1).
    """
    for i in range(start, start + AHEAD):
        prefetch_place(wanted, i, id_at, row_at, capacity)
    for i in range(start, wanted.size):
        prefetch_place(wanted, i + AHEAD, id_at, row_at, capacity)
        bits = mix(wanted[i])
        sub = np.int64(bits & _MASK)
        size = capacity[sub]
        ids = carray(pointer(id_at[sub]), (size,), np.int64)
        rows = carray(pointer(row_at[sub]), (size,), np.int32)
        position = probe(ids, rows, size, wanted[i], bits)
        row = rows[position]
        if row == EMPTY:
            if (used[sub] + 1) * 10 > size * 7:
                return i, sub
            if counts[1] > 0:
                counts[1] -= 1
                row = free[counts[1]]
            else:
                row = np.int32(counts[0])
                counts[0] += 1
            ids[position] = wanted[i]
            rows[position] = row
            used[sub] += 1
            is_new[i] = True
        out[i] = row
    return wanted.size, -1


@kernel
def remove(wanted: Any, out: Any, id_at: Any, row_at: Any, capacity: Any, used: Any) -> None:
    """Take ids out; `out` gets the rows they had (-1: was not there).

    Entries behind a removed one are moved up, so that no marks are left that slow searches down.
    """
    for i in range(wanted.size):
        bits = mix(wanted[i])
        sub = np.int64(bits & _MASK)
        size = capacity[sub]
        ids = carray(pointer(id_at[sub]), (size,), np.int64)
        rows = carray(pointer(row_at[sub]), (size,), np.int32)
        hole = probe(ids, rows, size, wanted[i], bits)
        out[i] = rows[hole]
        if rows[hole] == EMPTY:
            continue
        used[sub] -= 1
        rows[hole] = EMPTY
        position = hole
        while True:
            position += 1
            if position == size:
                position = 0
            if rows[position] == EMPTY:
                break
            home = place(mix(ids[position]), size)
            # Whether `home` lies cyclically in (hole, position]: then the entry must stay.
            if hole <= position:
                stays = hole < home and home <= position
            else:
                stays = hole < home or home <= position
            if not stays:
                ids[hole] = ids[position]
                rows[hole] = rows[position]
                rows[position] = EMPTY
                hole = position


@kernel
def entries(
    first: int, last: int, ids_out: Any, rows_out: Any, id_at: Any, row_at: Any, capacity: Any
) -> None:
    """Ids and rows of the sub-tables `first` to `last` - 1, one after the other."""
    count = 0
    for sub in range(first, last):
        size = capacity[sub]
        ids = carray(pointer(id_at[sub]), (size,), np.int64)
        rows = carray(pointer(row_at[sub]), (size,), np.int32)
        for position in range(size):
            if rows[position] != EMPTY:
                ids_out[count] = ids[position]
                rows_out[count] = rows[position]
                count += 1


@kernel
def rehash(ids: Any, rows: Any, new_ids: Any, new_rows: Any) -> None:
    """Copy all entries of a sub-table into a larger, empty one."""
    size = new_ids.size
    for i in range(ids.size):
        if rows[i] != EMPTY:
            position = probe(new_ids, new_rows, size, ids[i], mix(ids[i]))
            new_ids[position] = ids[i]
            new_rows[position] = rows[i]
