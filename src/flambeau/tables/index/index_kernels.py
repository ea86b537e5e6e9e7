"""Kernels of the index: open addressing with linear probing, over many small sub-tables.

A sub-table is one array of slots, each three int32: the lower and the upper half of an id, and its
row (-1 if the slot is empty, so every int64 is a valid id). The id that a search compares and the
row that it returns are thus in the same cache line. `at` holds the addresses of the sub-tables,
`capacity` and `used` their sizes in slots.
"""

from typing import Any

import numpy as np

from flambeau.kernels.compiled import AHEAD, carray, inlined, kernel, pointer, prefetch
from flambeau.kernels.mixing import mix
from flambeau.tables.index.hashing import SUBTABLE_BITS

SUBTABLES = 1 << SUBTABLE_BITS
EMPTY = np.int32(-1)
#: Number of int32 values per slot.
SLOT = 3

_MASK = np.uint64(SUBTABLES - 1)
_HALF = np.uint64(32)


@inlined
def place(bits: Any, capacity: Any) -> Any:
    """Return the first position to search for a hash: its upper half, scaled to the capacity."""
    return np.int64(((bits >> _HALF) * np.uint64(capacity)) >> _HALF)


@inlined
def id_in(slots: Any, position: Any) -> Any:
    """Return the id in a slot."""
    low = np.int64(np.uint32(slots[SLOT * position]))
    return low | (np.int64(slots[SLOT * position + 1]) << 32)


@inlined
def row_of(slots: Any, position: Any) -> Any:
    """Return the row in a slot."""
    return slots[SLOT * position + 2]


@inlined
def fill(slots: Any, position: Any, wanted: Any, row: Any) -> Any:
    """Write an id and its row into a slot."""
    slots[SLOT * position] = np.int32(wanted)
    slots[SLOT * position + 1] = np.int32(wanted >> 32)
    slots[SLOT * position + 2] = row


@inlined
def probe(slots: Any, capacity: Any, wanted: Any, bits: Any) -> Any:
    """Return the position of an id, or of the empty slot where it would be inserted."""
    position = place(bits, capacity)
    while row_of(slots, position) != EMPTY and id_in(slots, position) != wanted:
        position += 1
        if position == capacity:
            position = 0
    return position


@inlined
def subtable(bits: Any) -> Any:
    """Return the sub-table of a hash."""
    return np.int64(bits & _MASK)


@inlined
def slots_of(at: Any, capacity: Any, sub: Any) -> Any:
    """Return the slots of a sub-table as an array, without a copy."""
    return carray(pointer(at[sub]), (SLOT * capacity[sub],), np.int32)


@inlined
def prefetch_place(wanted: Any, i: Any, at: Any, capacity: Any) -> Any:
    """Prefetch the memory where the search for `wanted[i]` begins, if `i` is within `wanted`.

    Prefetches the slots after it as well: every third search continues in the next cache line.
    """
    if i < wanted.size:
        bits = mix(wanted[i])
        sub = subtable(bits)
        address = at[sub] + place(bits, capacity[sub]) * (4 * SLOT)
        prefetch(address)
        prefetch(address + 2 * (4 * SLOT))


@kernel
def find(wanted: Any, out: Any, at: Any, capacity: Any) -> None:
    """Write the row of each id to `out`; -1 for those that have none."""
    for i in range(AHEAD):
        prefetch_place(wanted, i, at, capacity)
    for i in range(wanted.size):
        prefetch_place(wanted, i + AHEAD, at, capacity)
        bits = mix(wanted[i])
        sub = subtable(bits)
        slots = slots_of(at, capacity, sub)
        out[i] = row_of(slots, probe(slots, capacity[sub], wanted[i], bits))


@kernel
def find_or_insert(
    wanted: Any,
    out: Any,
    is_new: Any,
    start: int,
    at: Any,
    capacity: Any,
    used: Any,
    free: Any,
    counts: Any,
) -> Any:
    """Write the row of each id from `start` on to `out`; new ids get a free row.

    `counts` is [next never-used row, number of free rows]. Returns (first id not processed,
    sub-table that must grow first), or (number of ids, -1) when all are done.
    """
    for i in range(start, start + AHEAD):
        prefetch_place(wanted, i, at, capacity)
    for i in range(start, wanted.size):
        prefetch_place(wanted, i + AHEAD, at, capacity)
        bits = mix(wanted[i])
        sub = subtable(bits)
        slots = slots_of(at, capacity, sub)
        position = probe(slots, capacity[sub], wanted[i], bits)
        row = row_of(slots, position)
        if row == EMPTY:
            if (used[sub] + 1) * 10 > capacity[sub] * 7:
                return i, sub
            if counts[1] > 0:
                counts[1] -= 1
                row = free[counts[1]]
            else:
                row = np.int32(counts[0])
                counts[0] += 1
            fill(slots, position, wanted[i], row)
            used[sub] += 1
            is_new[i] = True
        out[i] = row
    return wanted.size, -1


@kernel
def remove(wanted: Any, out: Any, at: Any, capacity: Any, used: Any) -> None:
    """Remove ids; write the rows they had to `out`, -1 for ids that had none.

    Entries after a removed one are moved up, so that no tombstones slow down searches.
    """
    for i in range(wanted.size):
        bits = mix(wanted[i])
        sub = subtable(bits)
        size = capacity[sub]
        slots = slots_of(at, capacity, sub)
        hole = probe(slots, size, wanted[i], bits)
        out[i] = row_of(slots, hole)
        if out[i] == EMPTY:
            continue
        used[sub] -= 1
        slots[SLOT * hole + 2] = EMPTY
        position = hole
        while True:
            position += 1
            if position == size:
                position = 0
            row = row_of(slots, position)
            if row == EMPTY:
                break
            entry = id_in(slots, position)
            home = place(mix(entry), size)
            # If `home` lies cyclically in (hole, position], the entry must stay.
            if hole <= position:
                stays = hole < home and home <= position
            else:
                stays = hole < home or home <= position
            if not stays:
                fill(slots, hole, entry, row)
                slots[SLOT * position + 2] = EMPTY
                hole = position


@kernel
def entries(first: int, last: int, ids_out: Any, rows_out: Any, at: Any, capacity: Any) -> None:
    """Write ids and rows of the sub-tables `first` to `last` - 1, one after the other."""
    count = 0
    for sub in range(first, last):
        slots = slots_of(at, capacity, sub)
        for position in range(capacity[sub]):
            if row_of(slots, position) != EMPTY:
                ids_out[count] = id_in(slots, position)
                rows_out[count] = row_of(slots, position)
                count += 1


@kernel
def rehash(slots: Any, new_slots: Any) -> None:
    """Copy all entries of a sub-table into a larger, empty one."""
    size = new_slots.size // SLOT
    for i in range(slots.size // SLOT):
        row = row_of(slots, i)
        if row != EMPTY:
            wanted = id_in(slots, i)
            fill(new_slots, probe(new_slots, size, wanted, mix(wanted)), wanted, row)
