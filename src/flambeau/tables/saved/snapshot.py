"""A consistent view of a table at one point in time, read in pieces while training continues.

A row that has not been read yet is copied before it changes. The snapshot therefore needs one bit
of memory per row, and a copy of the rows that changed meanwhile and wait to be read.
"""

from collections.abc import Callable
from typing import final

import numpy as np

from flambeau.tables.index.bits import RowBits
from flambeau.tables.index.ids import Ids
from flambeau.tables.index.index import Rows
from flambeau.tables.index.index_kernels import SUBTABLES
from flambeau.tables.saved import snapshot_kernels
from flambeau.tables.saved.chunk import Chunk, joined
from flambeau.tables.storage import Storage, gather

__all__ = ["Chunk", "TableSnapshot"]

#: Index entries scanned before a piece with fewer rows than its limit is returned.
ENTRIES_AT_ONCE = 1 << 20


@final
class TableSnapshot:
    """Snapshot that returns every row as it was when the snapshot began, in no particular order.

    `rows` is how many rows it returns; `removed` are ids that were evicted since the last full
    snapshot and had no row when this one began.
    """

    def __init__(
        self,
        storage: Storage,
        given: RowBits,
        rows: int,
        removed: Ids,
        detach: Callable[[bool], None],
    ) -> None:
        self.rows, self.removed = rows, removed
        self._storage = storage
        self._given = given
        self._left_in_table = rows
        self._part = 0
        self._saved: list[Chunk] = []
        self._detach: Callable[[bool], None] | None = detach

    def take(self, max_rows: int) -> Chunk | None:
        """Return the next rows, at most `max_rows`; when none are left, end and return None."""
        pieces = self._take_saved(max_rows)
        room = max_rows - sum(piece.ids.size for piece in pieces)
        if room and self._left_in_table:
            pieces.append(self._take_from_table(min(room, self._left_in_table)))
        if not pieces:
            self._end(completed=True)
            return None
        return pieces[0] if len(pieces) == 1 else joined(pieces)

    def abandon(self) -> None:
        """End the snapshot early, as if it had not begun."""
        self._saved.clear()
        self._left_in_table = 0
        self._end(completed=False)

    def save(self, ids: Ids, rows: Rows) -> None:
        """Copy those of the rows that were not read yet, before they change or are evicted."""
        if self._left_in_table == 0:
            return
        chosen = self._given.claim(rows)
        if chosen.size:
            self._left_in_table -= chosen.size
            self._saved.append(self._chunk(ids[chosen], rows[chosen]))

    def leave_out(self, rows: Rows) -> None:
        """Exclude rows that were created after the snapshot began."""
        self._given.claim(rows)

    def _take_saved(self, max_rows: int) -> list[Chunk]:
        pieces: list[Chunk] = []
        while self._saved and max_rows > 0:
            piece = self._saved.pop()
            if piece.ids.size > max_rows:
                piece, rest = piece.cut(max_rows)
                self._saved.append(rest)
            max_rows -= piece.ids.size
            pieces.append(piece)
        return pieces

    def _take_from_table(self, max_rows: int) -> Chunk:
        ids, rows = np.empty(max_rows, np.int64), np.empty(max_rows, np.int64)
        count, self._part = snapshot_kernels.take_entries(
            self._part,
            SUBTABLES,
            ENTRIES_AT_ONCE,
            ids,
            rows,
            self._given.words,
            *self._storage.index.place,
        )
        assert count > 0, "rows that were not given are in parts that were not passed"
        self._left_in_table -= count
        return self._chunk(ids[:count], rows[:count])

    def _chunk(self, ids: Ids, rows: Rows) -> Chunk:
        storage = self._storage
        seen = None if storage.seen is None else gather(storage.seen, rows)[:, 0]
        return Chunk(ids, gather(storage.values, rows), gather(storage.state, rows), seen)

    def _end(self, completed: bool) -> None:
        if self._detach is not None:
            self._detach(completed)
            self._detach = None
