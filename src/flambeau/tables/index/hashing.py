"""The hash that decides where an id is stored: its shard, sub-table and position."""

from typing import Any

import numpy as np

from flambeau.kernels.compiled import kernel
from flambeau.kernels.mixing import mix
from flambeau.tables.index.ids import Ids

#: Number of hash bits that choose the sub-table; other bits choose the shard.
SUBTABLE_BITS = 10

_SHARD_SHIFT = np.uint64(SUBTABLE_BITS)
_SHARD_MASK = np.uint64((1 << 22) - 1)


@kernel
def shards_of(ids: Ids, shards: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Return which of `shards` shards holds each id."""
    out = np.empty(ids.size, np.int32)
    for i in range(ids.size):
        out[i] = np.int32(((mix(ids[i]) >> _SHARD_SHIFT) & _SHARD_MASK) % np.uint64(shards))
    return out
