"""Division of a batch's ids among shards, and reassembly of their rows in order."""

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from flambeau.kernels.compiled import kernel
from flambeau.tables.index.hashing import shards_of
from flambeau.tables.index.ids import Ids

Array = np.ndarray[Any, Any]


@kernel
def _by_shard(shards: Any, bounds: Any, order: Any) -> None:
    """Write the positions grouped by shard; `bounds` [shards + 1] are the starts of the groups."""
    for i in range(shards.size):
        bounds[shards[i] + 1] += 1
    for shard in range(bounds.size - 1):
        bounds[shard + 1] += bounds[shard]
    place = bounds[:-1].copy()
    for i in range(shards.size):
        order[place[shards[i]]] = i
        place[shards[i]] += 1


@kernel
def _take(order: Any, values: Any, out: Any) -> None:
    for i in range(order.size):
        for j in range(values.shape[1]):
            out[i, j] = values[order[i], j]


@kernel
def _put(order: Any, values: Any, out: Any) -> None:
    for i in range(order.size):
        for j in range(values.shape[1]):
            out[order[i], j] = values[i, j]


@final
class Partition:
    """Batch of ids divided among shards."""

    def __init__(self, ids: Ids, order: Array | None, bounds: list[int]) -> None:
        self._order, self._bounds = order, bounds
        self._ids = ids if order is None else ids[order]

    def ids(self, shard: int) -> Ids:
        """Return the ids of one shard."""
        own: Ids = self._ids[self._bounds[shard] : self._bounds[shard + 1]]
        return own

    def rows(self, shard: int, values: Array) -> Array:
        """Return those of `values` [n, dim] that belong to one shard's ids."""
        if self._order is None:
            return values
        order = self._own(shard)
        out = np.empty((order.size, values.shape[1]), values.dtype)
        _take(order, values, out)
        return out

    def merge(self, parts: Sequence[Array]) -> Array:
        """Return the rows of all shards in the order of the batch."""
        if self._order is None:
            return parts[0]
        out = np.empty((self._ids.size, parts[0].shape[1]), parts[0].dtype)
        for shard, part in enumerate(parts):
            _put(self._own(shard), part, out)
        return out

    def _own(self, shard: int) -> Array:
        assert self._order is not None
        return self._order[self._bounds[shard] : self._bounds[shard + 1]]


def split(ids: Ids, shards: int) -> Partition:
    """Divide distinct ids among shards."""
    if shards == 1:
        return Partition(ids, None, [0, ids.size])
    bounds = np.zeros(shards + 1, np.int64)
    order = np.empty(ids.size, np.int64)
    _by_shard(shards_of(ids, shards), bounds, order)
    return Partition(ids, order, bounds.tolist())
