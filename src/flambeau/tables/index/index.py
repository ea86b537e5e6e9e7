"""A hash index from any int64 id to a row number, which grows a little at a time."""

from typing import Any, final

import numpy as np

from flambeau.tables.index import index_kernels
from flambeau.tables.index.ids import Ids
from flambeau.tables.index.index_kernels import EMPTY, SLOT, SUBTABLES

GROWTH = 1.3
FIRST_CAPACITY = 8

Array = np.ndarray[Any, Any]
Rows = np.ndarray[Any, np.dtype[np.int64]]


@final
class Index:
    """Map from ids to rows 0, 1, 2, ...; the rows of removed ids are reused."""

    def __init__(self) -> None:
        self._slots = [_empty_slots(FIRST_CAPACITY) for _ in range(SUBTABLES)]
        self._at = np.array([slots.ctypes.data for slots in self._slots])
        self._capacity = np.full(SUBTABLES, FIRST_CAPACITY, np.int64)
        self._times_grown = np.zeros(SUBTABLES, np.int64)
        self._used = np.zeros(SUBTABLES, np.int64)
        self._free = np.empty(0, np.int32)
        self._counts = np.zeros(2, np.int64)

    def __len__(self) -> int:
        return int(self._used.sum())

    @property
    def place(self) -> tuple[Any, Any]:
        """Addresses and sizes of the sub-tables, as kernels take them; valid until an insertion."""
        return self._at, self._capacity

    @property
    def rows_ever(self) -> int:
        """The largest row number ever given out, plus one."""
        return int(self._counts[0])

    @property
    def nbytes(self) -> int:
        """Memory of the index in bytes, without the rows themselves."""
        entries = int(self._capacity.sum()) * 4 * SLOT
        fixed = sum(a.nbytes for a in (*self.place, self._times_grown, self._used))
        return entries + fixed + self._free.nbytes

    def find(self, ids: Ids, out: Rows | None = None) -> Rows:
        """Return the row of each id (in `out`, if given), -1 if it has none. Changes nothing."""
        if out is None:
            out = np.empty(ids.size, np.int64)
        index_kernels.find(ids, out, *self.place)
        return out

    def find_or_insert(self, ids: Ids) -> tuple[Rows, np.ndarray[Any, np.dtype[np.bool_]]]:
        """Return the row of each id, and whether it is new: true once per new id."""
        out = np.empty(ids.size, np.int64)
        is_new = np.zeros(ids.size, np.bool_)
        done = 0
        while True:
            done, full = index_kernels.find_or_insert(
                ids, out, is_new, done, *self.place, self._used, self._free, self._counts
            )
            if full < 0:
                return out, is_new
            self._grow(full)

    def remove(self, ids: Ids) -> Rows:
        """Remove ids and free their rows; return these rows, -1 for ids that had none."""
        out = np.empty(ids.size, np.int64)
        index_kernels.remove(ids, out, *self.place, self._used)
        self._release(out[out >= 0])
        return out

    def entries(self, first: int = 0, last: int = SUBTABLES) -> tuple[Ids, Rows]:
        """Return copies of ids and rows of the parts `first` to `last` - 1 of `SUBTABLES`."""
        count = int(self._used[first:last].sum())
        ids, rows = np.empty(count, np.int64), np.empty(count, np.int64)
        index_kernels.entries(first, last, ids, rows, *self.place)
        return ids, rows

    def _grow(self, part: int) -> None:
        size = self._next_capacity(part)
        slots = _empty_slots(size)
        index_kernels.rehash(self._slots[part], slots)
        self._slots[part], self._at[part] = slots, slots.ctypes.data
        self._capacity[part] = size

    def _next_capacity(self, part: int) -> int:
        """Return the next size of a part; sizes differ, so that parts do not all grow at once."""
        self._times_grown[part] += 1
        exponent = float(self._times_grown[part]) + part / SUBTABLES
        return int(FIRST_CAPACITY * GROWTH**exponent) + 1

    def _release(self, rows: Rows) -> None:
        count = int(self._counts[1])
        needed = count + rows.size
        if needed > self._free.size:
            grown = np.empty(max(needed, int(self._free.size * GROWTH)), np.int32)
            grown[:count] = self._free[:count]
            self._free = grown
        self._free[count:needed] = rows
        self._counts[1] = needed


def _empty_slots(capacity: int) -> Array:
    return np.full(SLOT * capacity, EMPTY, np.int32)
