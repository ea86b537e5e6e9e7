"""Summaries of a column: counts, moments, distinct and frequent values, and a sample.

Everything but the sample covers all rows. Summaries of parts of the rows are merged in the order of
the parts, so that the result does not depend on the processes that gathered them.
"""

from dataclasses import dataclass, field, replace
from typing import Any, Literal, final

import numpy as np
import pyarrow as pa

from flambeau.data.arrow_columns import is_text
from flambeau.features.keys import is_list, item_type, keys_of, plain_values
from flambeau.features.number_columns import plain_column
from flambeau.features.summaries import summary_kernels
from flambeau.features.summaries.distinct_count import empty_registers
from flambeau.features.summaries.frequent_keys import FrequentKeys, KeyCounter

Array = np.ndarray[Any, Any]

#: The kind of a column's values: for `other` ones, only missing values are counted.
Kind = Literal["number", "boolean", "time", "text", "other"]

#: The role of a column: any values, ids of a vocabulary, or values that a vocabulary has counted.
Role = Literal["values", "ids", "counted"]

#: Ids of a vocabulary below this are counted individually.
LOW_IDS = 256
#: Limit on the average number of items in a row of the sample.
_SAMPLED_ITEMS = 4


def kind_of(column: pa.DataType) -> Kind:
    """Return the kind of a column's values, or of the items of its lists."""
    kind, types = item_type(column), pa.types
    if is_list(column) and types.is_string_view(kind):
        return "other"
    if types.is_boolean(kind):
        return "boolean"
    if types.is_integer(kind) or types.is_floating(kind):
        return "number"
    if types.is_temporal(kind) and not types.is_interval(kind):
        return "time"
    return "text" if is_text(kind) else "other"


@final
@dataclass(frozen=True)
class ColumnSummary:
    """A summary of a column in some rows.

    `nulls` are rows without a value. `values` are those of the other rows, or the items of their
    lists; `null_items` of the items are null. Of numbers, `finite` are finite; `low`, `high`,
    `mean` and `squares` (the sum of squared differences from the mean) are those of finite numbers.
    """

    rows: int = 0
    nulls: int = 0
    values: int = 0
    null_items: int = 0
    finite: int = 0
    nan: int = 0
    infinite: int = 0
    zeros: int = 0
    low: int | float | None = None
    high: int | float | None = None
    mean: float = 0.0
    squares: float = 0.0
    registers: Array = field(default_factory=empty_registers)
    frequent: FrequentKeys = field(default_factory=FrequentKeys)
    #: Counts of the first ids of a vocabulary; empty for other columns.
    low_ids: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    #: Keys of some values in the order of rows; null where one is missing.
    sample: pa.Array = field(default_factory=lambda: pa.array([], pa.int64()))

    def merge(self, other: "ColumnSummary") -> "ColumnSummary":
        """Return the summary of the rows of both; those of `other` come later.

        Its sample is empty: callers that merge many summaries gather the samples.
        """
        finite = self.finite + other.finite
        difference, share = other.mean - self.mean, other.finite / max(1, finite)
        lows = [each.low for each in (self, other) if each.low is not None]
        highs = [each.high for each in (self, other) if each.high is not None]
        sums = {name: getattr(self, name) + getattr(other, name) for name in COUNTS}
        return replace(
            self,
            **sums,
            low=min(lows, default=None),
            high=max(highs, default=None),
            mean=self.mean + difference * share,
            squares=self.squares + other.squares + difference * difference * self.finite * share,
            registers=np.maximum(self.registers, other.registers),
            frequent=self.frequent.merge(other.frequent),
            low_ids=_added(self.low_ids, other.low_ids),
            sample=pa.array([], pa.int64()),
        )

    def with_sample(self, sample: pa.Array) -> "ColumnSummary":
        """Return the same summary with a sample."""
        return replace(self, sample=sample)


#: The fields of a summary that are added up.
COUNTS = ("rows", "nulls", "values", "null_items", "finite", "nan", "infinite", "zeros")


def _added(one: Array, other: Array) -> Array:
    if len(one) and len(other):
        found: Array = one + other
        return found
    return one if len(one) else other


@final
class ColumnSummarizer:
    """A collector of the summary of a column, as its `role` requires.

    For ids of a vocabulary, the first ones are counted, and all are sampled. Values that a
    vocabulary has counted are not counted again: only the number of distinct values is estimated.
    """

    def __init__(self, column: pa.DataType, role: Role = "values") -> None:
        self._kind = kind_of(column)
        self._is_list = is_list(column)
        self._role = role
        self._rows = self._nulls = self._values = self._null_items = 0
        self._counts = np.zeros(4, np.int64)
        self._bounds = np.zeros(2, _number_type(item_type(column)))
        self._moments = np.zeros(2)
        self._registers = empty_registers()
        self._counter = KeyCounter()
        self._low_ids = np.zeros(LOW_IDS if role == "ids" else 0, np.int64)
        self._sample: list[pa.Array] = []

    def add(self, column: pa.Array, sampled: pa.Array) -> None:
        """Add rows; `sampled` are the places of those that belong to the sample."""
        column = plain_column(column)
        self._rows += len(column)
        self._nulls += column.null_count
        if self._kind == "other":
            self._values += len(column) - column.null_count
            return
        values = plain_values(column)
        if self._is_list:
            self._values += len(values)
            self._null_items += values.null_count
        else:
            self._values += len(values) - values.null_count
        self._add_values(values.drop_null() if values.null_count else values)
        if len(sampled) and self._role != "counted":
            self._add_sample(plain_values(column.take(sampled)), len(sampled))

    def _add_values(self, values: pa.Array) -> None:
        if not len(values):
            return
        texts = self._kind == "text"
        if self._role == "ids":
            summary_kernels.count_low(numbers_of(values), self._low_ids)
        elif self._role == "counted":
            keys = keys_of(values) if texts else _keys(numbers_of(values))
            summary_kernels.add_distinct(keys, self._registers)
        elif texts:
            self._counter.add(keys_of(values), self._registers, values)
        else:
            numbers = numbers_of(values)
            summary_kernels.add_moments(numbers, self._counts, self._bounds, self._moments)
            self._counter.add(_keys(numbers), self._registers, None)

    def _add_sample(self, values: pa.Array, rows: int) -> None:
        if self._is_list:  # lists may be long
            step = 1 + len(values) // (_SAMPLED_ITEMS * rows + 1)
            values = values.take(pa.array(np.arange(0, len(values), step)))
        self._sample.append(values)

    def _sampled_keys(self) -> pa.Array:
        """Return the keys of the sample; null where a value is missing."""
        if not self._sample:
            return pa.array([], pa.int64())
        values = pa.concat_arrays(self._sample)
        missing = values.is_null().to_numpy(zero_copy_only=False).copy()
        present = values.drop_null()
        if self._kind == "text":
            keys = keys_of(present)
        else:
            numbers = numbers_of(present)
            missing[~missing] = numbers != numbers
            keys = _keys(numbers)
        filled = np.zeros(len(values), np.int64)
        filled[~missing] = keys
        return pa.array(filled, mask=missing)

    def found(self) -> ColumnSummary:
        """Return the summary of all rows that were added."""
        finite, nan, infinite, zeros = self._counts.tolist()
        # Zeros lose their sign: otherwise that of the least would depend on the order.
        low, high = (self._bounds + 0).tolist() if finite else (None, None)
        mean, squares = self._moments.tolist()
        return ColumnSummary(
            self._rows,
            self._nulls,
            self._values,
            self._null_items,
            finite,
            nan,
            infinite,
            zeros,
            low,
            high,
            mean,
            squares,
            self._registers,
            self._counter.found(),
            self._low_ids,
            self._sampled_keys(),
        )


def _number_type(kind: pa.DataType) -> type[Any]:
    if pa.types.is_floating(kind):
        return np.float64
    return np.uint64 if pa.types.is_uint64(kind) else np.int64


def numbers_of(values: pa.Array) -> Array:
    """Return numbers, booleans or times, none of them null, as int64, uint64 or float64."""
    kind = values.type
    if pa.types.is_floating(kind):
        floats: Array = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
        return floats
    keys = keys_of(values)
    return keys.view(np.uint64) if pa.types.is_uint64(kind) else keys


def _keys(numbers: Array) -> Array:
    """Return the bits of numbers that are not NaN; all zeros have the same bits."""
    if numbers.dtype != np.float64:
        return numbers.view(np.int64)
    there = numbers == numbers
    keys: Array = ((numbers if there.all() else numbers[there]) + 0.0).view(np.int64)
    return keys
