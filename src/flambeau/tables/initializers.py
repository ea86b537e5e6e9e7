"""First values of rows, from (seed, table, id) alone: the same whenever and wherever made."""

from typing import Any

import numpy as np

from flambeau.config.tables import TableSpec
from flambeau.kernels.compiled import inlined, kernel
from flambeau.kernels.mixing import mix
from flambeau.tables.index.ids import Ids
from flambeau.tables.precision import COMPUTED, narrow, widen

Array = np.ndarray[Any, Any]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_ELEVEN = np.uint64(11)
_ONE = np.uint64(1)
_TO_UNIT = 1.0 / (1 << 53)
_TWO_PI = 6.283185307179586


@inlined
def _unit(key: Any, column: Any) -> Any:
    """Return a number in [0, 1) for one column of a row."""
    bits = mix(key + (np.uint64(column) + _ONE) * _GOLDEN)
    return np.float64(bits >> _ELEVEN) * _TO_UNIT


@kernel
def uniform(ids: Any, key: Any, low: float, high: float, out: Any) -> None:
    """Fill `out` [n, width] with numbers between `low` and `high`."""
    for i in range(ids.size):
        row = mix(np.uint64(ids[i]) ^ key)
        for j in range(out.shape[1]):
            out[i, j] = low + (high - low) * _unit(row, j)


@kernel
def normal(ids: Any, key: Any, mean: float, std: float, out: Any) -> None:
    """Fill `out` [n, width] with normally distributed numbers (Box-Muller)."""
    for i in range(ids.size):
        row = mix(np.uint64(ids[i]) ^ key)
        for j in range(out.shape[1]):
            radius = np.sqrt(-2.0 * np.log(1.0 - _unit(row, 2 * j)))
            out[i, j] = mean + std * radius * np.cos(_TWO_PI * _unit(row, 2 * j + 1))


def table_key(seed: int, table: str) -> np.uint64:
    """Return a key that makes the random numbers of one table differ from those of another."""
    words = np.random.SeedSequence([seed, *table.encode()]).generate_state(1, np.uint64)
    return np.uint64(words[0])


def first_values(spec: TableSpec, key: np.uint64, ids: Ids) -> Array:
    """Return the first values [n, dim] of new rows, in the type they are stored in."""
    out = np.empty((ids.size, spec.dim), COMPUTED[spec.dtype])
    setting = spec.initializer
    if setting.kind == "uniform":
        uniform(ids, key, -setting.scale, setting.scale, out)
    elif setting.kind == "normal":
        normal(ids, key, 0.0, setting.scale, out)
    else:
        out[:] = setting.value
    return narrow(out, spec.dtype)


def default_row(spec: TableSpec) -> Array:
    """Return the values [dim] of an id without a row, in the compute type: the mean."""
    mean = spec.initializer.value if spec.initializer.kind == "constant" else 0.0
    stored = narrow(np.full((1, spec.dim), mean, COMPUTED[spec.dtype]), spec.dtype)
    return widen(stored, spec.dtype).reshape(spec.dim)
