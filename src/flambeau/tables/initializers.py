"""First values of a row, from (seed, table, id) alone: not from when or where it was made."""

from typing import Any

import numpy as np

from flambeau.tables.compiled import inlined, kernel
from flambeau.tables.hashing import mix

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_ELEVEN = np.uint64(11)
_ONE = np.uint64(1)
_TO_UNIT = 1.0 / (1 << 53)
_TWO_PI = 6.283185307179586


@inlined
def _unit(key: Any, column: Any) -> Any:
    """A number in [0, 1) for one column of a row."""
    bits = mix(key + (np.uint64(column) + _ONE) * _GOLDEN)
    return np.float64(bits >> _ELEVEN) * _TO_UNIT


@kernel
def uniform(ids: Any, key: Any, low: float, high: float, out: Any) -> None:
    """Numbers between `low` and `high`. [n, width]"""
    for i in range(ids.size):
        row = mix(np.uint64(ids[i]) ^ key)
        for j in range(out.shape[1]):
            out[i, j] = low + (high - low) * _unit(row, j)


@kernel
def normal(ids: Any, key: Any, mean: float, std: float, out: Any) -> None:
    """Normally distributed numbers (Box-Muller). [n, width]"""
    for i in range(ids.size):
        row = mix(np.uint64(ids[i]) ^ key)
        for j in range(out.shape[1]):
            radius = np.sqrt(-2.0 * np.log(1.0 - _unit(row, 2 * j)))
            out[i, j] = mean + std * radius * np.cos(_TWO_PI * _unit(row, 2 * j + 1))


def table_key(seed: int, table: str) -> np.uint64:
    """What tells the rows of one table from those of another."""
    words = np.random.SeedSequence([seed, *table.encode()]).generate_state(1, np.uint64)
    return np.uint64(words[0])
