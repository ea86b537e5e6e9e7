"""Eviction policies, which choose rows by one number each: when or how often it was trained."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, final

import numpy as np

from flambeau.config import tables as settings
from flambeau.kernels.compiled import kernel
from flambeau.kernels.mixing import mix
from flambeau.tables.index.ids import Ids
from flambeau.tables.index.index import Rows
from flambeau.tables.index.index_kernels import SUBTABLES
from flambeau.tables.inputs import for_kernels
from flambeau.tables.slabs import Slabs
from flambeau.tables.storage import Storage, gather, scatter

#: Tables with fewer rows are scanned completely for rows to evict, larger ones in parts.
FEW_ROWS = 1 << 16

#: In a large table about this many rows are compared at a time, and at most this share of them, the
#: least used, is evicted (more only if the capacity requires it).
SAMPLE = 4096
SHARE = 1 / 8

#: Rows with this number are never evicted.
STAYS = np.iinfo(np.uint32).max

Array = np.ndarray[Any, Any]
Leaving = tuple[Ids, Rows]

_HALF = np.uint64(32)


class Eviction(ABC):
    """Policy that chooses which rows to remove.

    Each push calls `trained`, `leaving` and `settle`, in this order. `step` is the number of the
    push, `now` its time in seconds.
    """

    def __init__(self, storage: Storage) -> None:
        assert storage.seen is not None
        self._index = storage.index
        self._seen: Slabs = storage.seen
        self._next_part = 0

    @abstractmethod
    def trained(self, rows: Rows, step: int, now: float) -> None:
        """Mark these rows as part of the push, so that it does not evict them."""

    @abstractmethod
    def leaving(self, incoming: int, step: int, now: float) -> Leaving:
        """Return the rows to evict before `incoming` new ones are created."""

    @abstractmethod
    def settle(self, new_rows: Rows, step: int, now: float) -> None:
        """Record that the new rows have been created."""

    def load(self, rows: Rows, seen: Array | None, step: int, now: float) -> None:
        """Set the numbers of loaded rows to `seen` [n], or as if they were new if it is None."""
        if seen is None:
            self.settle(rows, step, now)
        else:
            scatter(self._seen, rows, for_kernels(seen, np.uint32).reshape(-1, 1))

    def dump(self) -> dict[str, Any]:
        """Return the policy's state that is not stored per row, for a checkpoint."""
        return {"next_part": self._next_part}

    def load_dump(self, dump: Mapping[str, Any] | None) -> None:
        """Restore the state that `dump` returned; None starts from the beginning."""
        self._next_part = 0 if dump is None else int(dump.get("next_part", 0))

    def _stamp(self, rows: Rows, number: int) -> None:
        scatter(self._seen, rows, np.full((rows.size, 1), min(number, STAYS - 1), np.uint32))

    def _numbers(self, rows: Rows) -> Array:
        return gather(self._seen, rows)[:, 0]

    def _next_entries(self, parts: int) -> Leaving:
        """Return the entries of the next `parts` parts of the index, stopping at the last part."""
        first = self._next_part
        last = min(first + parts, SUBTABLES)
        self._next_part = last % SUBTABLES
        return self._index.entries(first, last)


@final
class Expiry(Eviction):
    """Eviction of rows that were not trained for some steps or seconds."""

    def __init__(self, setting: settings.TimeToLive, storage: Storage) -> None:
        super().__init__(storage)
        self._steps = setting.steps
        self._seconds = setting.seconds or (setting.days or 0.0) * 86400.0

    def trained(self, rows: Rows, step: int, now: float) -> None:
        # Rounded up, so that no row is evicted too early.
        self._stamp(rows, math.ceil(now) if self._steps is None else step)

    def leaving(self, incoming: int, step: int, now: float) -> Leaving:
        limit = now - self._seconds if self._steps is None else step - self._steps
        few = len(self._index) < FEW_ROWS
        ids, rows = self._index.entries() if few else self._next_entries(1)
        expired = self._numbers(rows) <= limit
        return ids[expired], rows[expired]

    def settle(self, new_rows: Rows, step: int, now: float) -> None:
        self.trained(new_rows, step, now)


class _Limit(Eviction):
    """Eviction of the rows with the smallest numbers when the table exceeds its capacity."""

    def __init__(self, setting: settings.Capacity, storage: Storage, shards: int) -> None:
        super().__init__(storage)
        self._capacity = -(-setting.rows // shards)

    def leaving(self, incoming: int, step: int, now: float) -> Leaving:
        count = len(self._index)
        excess = count + incoming - self._capacity
        if excess <= 0 or count == 0:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        if count < FEW_ROWS:
            return self._least(*self._index.entries(), excess, self._staying(step))
        return self._least_of_parts(excess, max(SHARE, excess / count), self._staying(step))

    def _least_of_parts(self, excess: int, share: float, staying: int) -> Leaving:
        """Scan some parts at a time: ids are distributed at random, so each is a sample of all."""
        parts_at_once = math.ceil(SUBTABLES * SAMPLE / len(self._index))
        found: list[Leaving] = []
        left = SUBTABLES
        while excess > 0 and left > 0:
            first = self._next_part
            ids, rows = self._next_entries(min(parts_at_once, left))
            left -= (self._next_part - first) % SUBTABLES or SUBTABLES
            wanted = min(excess, math.ceil(ids.size * share))
            found.append(self._least(ids, rows, wanted, staying))
            excess -= found[-1][0].size
        return np.concatenate([ids for ids, _ in found]), np.concatenate([r for _, r in found])

    def _least(self, ids: Ids, rows: Rows, wanted: int, staying: int) -> Leaving:
        """Return at most `wanted` rows with the smallest numbers; a hash of the id breaks ties."""
        order = np.empty(ids.size, np.uint64)
        _rank(ids, self._numbers(rows), order)
        may_leave = np.flatnonzero(order < np.uint64(staying) << _HALF)
        if wanted < may_leave.size:
            may_leave = may_leave[np.argpartition(order[may_leave], wanted)[:wanted]]
        return ids[may_leave], rows[may_leave]

    @abstractmethod
    def _staying(self, step: int) -> int:
        """Return the number from which on rows belong to this push and must stay."""


@final
class LeastRecent(_Limit):
    """LRU eviction: a row's number is the step in which it was last trained."""

    def trained(self, rows: Rows, step: int, now: float) -> None:
        self._stamp(rows, step)

    def settle(self, new_rows: Rows, step: int, now: float) -> None:
        self._stamp(new_rows, step)

    def _staying(self, step: int) -> int:
        return step


@final
class LeastOften(_Limit):
    """LFU eviction: a row's number is how many pushes contained it.

    During a push its rows are marked to stay; `settle` writes their new counts.
    """

    def __init__(self, setting: settings.Capacity, storage: Storage, shards: int) -> None:
        super().__init__(setting, storage, shards)
        self._marked = np.empty(0, np.int64), np.empty((0, 1), np.uint32)

    def trained(self, rows: Rows, step: int, now: float) -> None:
        counts = np.minimum(gather(self._seen, rows), STAYS - 2) + np.uint32(1)
        self._marked = rows, counts
        scatter(self._seen, rows, np.full_like(counts, STAYS))

    def settle(self, new_rows: Rows, step: int, now: float) -> None:
        scatter(self._seen, *self._marked)
        self._marked = np.empty(0, np.int64), np.empty((0, 1), np.uint32)
        self._stamp(new_rows, 1)

    def _staying(self, step: int) -> int:
        return int(STAYS)


@kernel
def _rank(ids: Any, numbers: Any, out: Any) -> None:
    """Write keys to `out` that sort by `numbers`, then by id in a random but fixed order."""
    for i in range(ids.size):
        out[i] = (np.uint64(numbers[i]) << _HALF) | (mix(ids[i]) >> _HALF)


def build_eviction(
    setting: settings.TimeToLive | settings.Capacity | None, storage: Storage, shards: int
) -> Eviction | None:
    """Build the policy of a setting for one of `shards` shards; None keeps every row."""
    if setting is None:
        return None
    if isinstance(setting, settings.TimeToLive):
        return Expiry(setting, storage)
    kind = LeastRecent if setting.policy == "lru" else LeastOften
    return kind(setting, storage, shards)
