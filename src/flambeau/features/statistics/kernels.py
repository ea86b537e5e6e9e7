"""Compiled kernels that partition keys, and draw reproducible random numbers."""

from typing import Any

import numpy as np

from flambeau.kernels.compiled import inlined, kernel
from flambeau.kernels.mixing import mix

Array = np.ndarray[Any, Any]


@kernel
def partition_of(keys: Any, partitions: int, salt: int, out: Any) -> None:
    """Write the partition of each key to `out`; adjacent keys are in unrelated partitions.

    Keys of one partition are spread over all partitions by another salt.
    """
    first = mix(np.int64(0x5BD1E995) + np.int64(salt))
    for i in range(keys.size):
        out[i] = mix(np.uint64(keys[i]) ^ first) % np.uint64(partitions)


@inlined
def _uniform(bits: Any) -> Any:
    """Return a number from 0 to 1, from the highest 53 bits."""
    return np.float64(bits >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@kernel
def _uniform_of_keys(seed: Any, keys: Any, out: Any) -> None:
    for i in range(keys.size):
        out[i] = _uniform(mix(mix(seed) ^ np.uint64(keys[i])))


@kernel
def _uniform_of_rows(seed: Any, shard: Any, first: Any, out: Any) -> None:
    for i in range(out.size):
        out[i] = _uniform(mix(mix(mix(seed) ^ np.uint64(shard)) ^ np.uint64(first + i)))


def uniform_of_keys(seed: int, keys: Array) -> Array:
    """Return a random, but reproducible, number from 0 to 1 for each key."""
    out = np.empty(keys.size, np.float64)
    _uniform_of_keys(np.uint64(seed), keys, out)
    return out


def uniform_of_rows(seed: int, shard: int, first: int, count: int) -> Array:
    """Return a random, but reproducible, number from 0 to 1 for each of `count` rows of a shard."""
    out = np.empty(count, np.float64)
    _uniform_of_rows(np.uint64(seed), np.int64(shard), np.int64(first), out)
    return out
