"""Positions of ids that are among other ids, with a cache for repeated queries."""

from collections import deque
from typing import Any, final

import numpy as np

from flambeau.tables.index.ids import Ids
from flambeau.tables.index.unique_ids import Slots, places_among

#: The queries of one step repeat: for the next table, or when rows are fetched.
REMEMBERED = 32

Array = np.ndarray[Any, Any]


@final
class IdPositions:
    """Finder of distinct ids among other distinct ids, which caches `remembered` results.

    It keeps the arrays of these queries, so neither array may change afterwards.
    """

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._slots = Slots()
        self._known: deque[tuple[Ids, Ids, Array]] = deque(maxlen=remembered)

    def places(self, ids: Ids, others: Ids) -> Array:
        """Return the positions in `ids` of those ids that are among `others`."""
        if not others.size or not ids.size:
            return np.empty(0, np.int64)
        known = self._recall(ids, others)
        if known is not None:
            return known
        places = np.empty(ids.size + 1, np.int64)  # one more: the kernel writes one past the end
        # Twice the room: most searches end at their first slot.
        count = places_among(ids, others, places, *self._slots.empty(2 * others.size))
        places = places[:count]
        self._known.append((ids, others, places))
        return places

    def _recall(self, ids: Ids, others: Ids) -> Array | None:
        for a, b, places in self._known:
            if a is ids and b is others:
                return places
        if self._known:
            # Tables that share a column query equal ids, one after the other.
            a, b, places = self._known[-1]
            if np.array_equal(a, ids) and np.array_equal(b, others):
                return places
        return None
