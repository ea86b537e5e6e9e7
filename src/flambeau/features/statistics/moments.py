"""Count, mean, standard deviation and extremes of numbers."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, final

import numpy as np
import pyarrow as pa

from flambeau.features.keys import plain_values
from flambeau.features.statistics.exact_sums import Array, ExactSums, in_square_units, in_units
from flambeau.features.statistics.statistic import Accumulator, Statistic

_FIRST = {"column": pa.string(), "count": pa.int64(), "min": pa.float64(), "max": pa.float64()}
_PARTIAL = pa.schema({**_FIRST, "total": pa.binary(), "squares": pa.binary()})
_MOMENTS = pa.schema({**_FIRST, "mean": pa.float64(), "std": pa.float64()})


@final
@dataclass(frozen=True)
class Moments(Statistic):
    """A row for each column: `column`, `count`, and `min`, `max`, `mean` and `std` as float64.

    Nulls and NaN are missing, and not counted; without numbers, the moments are null. The standard
    deviation is that of the population. Sums are exact, and rounded at the end only, so that the
    order of rows, their batches and their division among processes make no difference. With
    infinite numbers the mean is infinite, or NaN if they have both signs, and the deviation NaN.
    """

    columns: tuple[str, ...]

    def accumulator(self) -> Accumulator:
        return _Accumulator(self.columns)

    def merge(self, tables: Sequence[pa.Table]) -> pa.Table:
        merged = merged_sums(tables)
        return pa.Table.from_pylist([merged[name].partial(name) for name in self.columns], _PARTIAL)

    def finish(self, partitions: Sequence[pa.Table]) -> pa.Table:
        merged = merged_sums(partitions)
        return pa.Table.from_pylist([merged[name].moments(name) for name in self.columns], _MOMENTS)


def merged_sums(tables: Iterable[pa.Table]) -> dict[str, "Sums"]:
    """Return the sums of each column, from the tables of accumulators."""
    merged: dict[str, Sums] = {}
    for table in tables:
        for row in table.to_pylist():
            found = Sums.of(row)
            merged[row["column"]] = merged.get(row["column"], Sums()) + found
    return merged


@final
@dataclass(frozen=True)
class Sums:
    """The sums of a column's numbers; `total` and `squares` are those of finite ones.

    Without numbers, `low` is infinite and `high` minus infinity.
    """

    count: int = 0
    low: float = math.inf
    high: float = -math.inf
    total: int = 0
    squares: int = 0

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(
            self.count + other.count,
            min(self.low, other.low),
            max(self.high, other.high),
            self.total + other.total,
            self.squares + other.squares,
        )

    def mean(self) -> Fraction | float:
        """Return the exact mean of at least one number; a float if one is infinite."""
        if math.isinf(self.low) or math.isinf(self.high):
            return self.low + self.high
        return in_units(self.total) / self.count

    def std(self) -> float:
        """Return the standard deviation of at least one number."""
        mean = self.mean()
        if not isinstance(mean, Fraction):
            return math.nan
        return _square_root(in_square_units(self.squares) / self.count - mean * mean)

    def moments(self, name: str) -> dict[str, Any]:
        """Return the column's row of the finished statistic."""
        row = {"column": name, "count": self.count}
        if not self.count:
            return row
        found = {"min": self.low, "max": self.high, "mean": float(self.mean()), "std": self.std()}
        return {**row, **found}

    def partial(self, name: str) -> dict[str, Any]:
        """Return the column's row of a table that can be merged with others."""
        totals = {"total": _as_bytes(self.total), "squares": _as_bytes(self.squares)}
        return {"column": name, "count": self.count, "min": self.low, "max": self.high, **totals}

    @staticmethod
    def of(row: Mapping[str, Any]) -> "Sums":
        """Return the sums of a row that `partial` returned."""
        total, squares = (_as_number(row[name]) for name in ("total", "squares"))
        return Sums(row["count"], row["min"], row["max"], total, squares)


def _as_bytes(number: int) -> bytes:
    return number.to_bytes(number.bit_length() // 8 + 1, "little", signed=True)


def _as_number(stored: bytes) -> int:
    return int.from_bytes(stored, "little", signed=True)


def _square_root(square: Fraction) -> float:
    """Return the square root of a number that may be outside the range of float64."""
    size = square.numerator.bit_length() - square.denominator.bit_length()
    half = size // 2
    scaled = square / 4**half if half >= 0 else square * 4**-half
    return math.ldexp(math.sqrt(scaled), half)


@final
class _Accumulator(Accumulator):
    """Exact sums of each column."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns
        self._found: dict[str, _ColumnSums] = {}

    def add(self, arrays: Mapping[str, pa.Array], shard: int) -> None:
        for name in self._columns:
            self._found.setdefault(name, _ColumnSums()).add(_numbers(arrays[name]))

    @property
    def nbytes(self) -> int:
        return sum(found.sums.nbytes for found in self._found.values())

    def take(self) -> dict[int, pa.Table]:
        if not self._found:
            return {}
        rows = [found.total().partial(name) for name, found in self._found.items()]
        self._found = {}
        return {0: pa.Table.from_pylist(rows, _PARTIAL)}


@final
class _ColumnSums:
    """Count, extremes and exact sums of the numbers of a column."""

    def __init__(self) -> None:
        self.sums = ExactSums()
        self._count, self._low, self._high = 0, math.inf, -math.inf

    def add(self, numbers: Array) -> None:
        """Add numbers: int64, uint64, or float64 without NaN."""
        if not len(numbers):
            return
        self._count += len(numbers)
        # Zeros lose their sign: otherwise that of the least would depend on the order.
        low, high = float(numbers.min()) + 0.0, float(numbers.max()) + 0.0
        self._low, self._high = min(self._low, low), max(self._high, high)
        if math.isinf(low) or math.isinf(high):
            numbers = numbers[np.isfinite(numbers)]
        self.sums.add(numbers)

    def total(self) -> Sums:
        """Return the sums of what was added."""
        return Sums(self._count, self._low, self._high, *self.sums.totals())


def _numbers(column: pa.Array) -> Array:
    """Return the numbers of a column that are not missing: int64, uint64 or float64."""
    values = plain_values(column).drop_null()
    if pa.types.is_integer(values.type):
        wide = pa.uint64() if pa.types.is_uint64(values.type) else pa.int64()
        integers: Array = values.cast(wide).to_numpy(zero_copy_only=False)
        return integers
    floats: Array = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
    missing = np.isnan(floats)
    return floats[~missing] if missing.any() else floats
