"""A batch of table rows on their way to or from a file."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from flambeau.tables.index.ids import Ids

Array = np.ndarray[Any, Any]


@final
@dataclass(frozen=True)
class Chunk:
    """Rows of a table: `ids` [n], `values` [n, dim] as they are stored, `state` [n, width].

    `seen` uint32 [n] is when or how often each row was trained, for tables with eviction.
    """

    ids: Ids
    values: Array
    state: Array
    seen: Array | None = None

    def cut(self, rows: int) -> tuple["Chunk", "Chunk"]:
        """Return the first `rows` rows and the rest, without copies."""
        return self._slice(slice(None, rows)), self._slice(slice(rows, None))

    def _slice(self, part: slice) -> "Chunk":
        seen = None if self.seen is None else self.seen[part]
        return Chunk(self.ids[part], self.values[part], self.state[part], seen)


def joined(chunks: list[Chunk]) -> Chunk:
    """Return the rows of several chunks of one table, copied into one."""
    seen = [chunk.seen for chunk in chunks if chunk.seen is not None]
    return Chunk(
        np.concatenate([chunk.ids for chunk in chunks]),
        np.concatenate([chunk.values for chunk in chunks]),
        np.concatenate([chunk.state for chunk in chunks]),
        np.concatenate(seen) if seen else None,
    )
