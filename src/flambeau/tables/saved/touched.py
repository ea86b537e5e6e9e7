"""A record of what changed in a table since its last full snapshot."""

from typing import final

import numpy as np

from flambeau.tables.index.bits import RowBits
from flambeau.tables.index.ids import Ids
from flambeau.tables.index.index import Index, Rows

_NOBODY = np.empty(0, np.int64)


@final
class Touched:
    """Record with one bit per trained row, and the ids whose rows were removed.

    A full snapshot resets the record, but the old one is kept until the snapshot is completed.
    """

    def __init__(self, index: Index) -> None:
        self.bits = RowBits()
        self._index = index
        self._left: list[Ids] = []
        self._before: tuple[RowBits, list[Ids]] | None = None

    def changed(self, rows: Rows) -> None:
        """Record that rows were trained or loaded."""
        self.bits.cover(self._index.rows_ever)
        self.bits.claim(rows)

    def left(self, ids: Ids, rows: Rows) -> None:
        """Record that rows are about to be removed."""
        self.bits.clear(rows)
        if self._before is not None:
            self._before[0].clear(rows)
        self._left.append(ids)
        if len(self._left) > 1 and sum(map(len, self._left[1:])) > len(self._left[0]):
            self._left = [np.unique(np.concatenate(self._left))]

    def removed(self) -> Ids:
        """Return the ids that were removed and have no row now."""
        ids = np.unique(np.concatenate([_NOBODY, *self._left]))
        return ids[self._index.find(ids) < 0]

    def start_anew(self) -> None:
        """Reset the record because a full snapshot begins."""
        self._before = self.bits, self._left
        self.bits, self._left = RowBits(), []

    def end_snapshot(self, completed: bool) -> None:
        """Record the end of the snapshot; if it was not completed, earlier changes still count."""
        if self._before is not None and not completed:
            bits, left = self._before
            self.bits.add(bits)
            self._left = [*left, *self._left]
        self._before = None
