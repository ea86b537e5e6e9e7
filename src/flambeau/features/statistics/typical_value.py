"""A typical value of a column: the mean, the median or the most frequent value."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, final

import pyarrow as pa

from flambeau.errors import DataError
from flambeau.features.statistics.moments import Moments, merged_sums
from flambeau.features.statistics.partial_tables import PartialTables
from flambeau.features.statistics.quantiles import SortedNumbers
from flambeau.features.statistics.statistic import Accumulator, Statistic, Workspace
from flambeau.features.statistics.value_counts import ValueCounts, counted

Strategy = Literal["mean", "median", "most_frequent"]


@final
@dataclass(frozen=True)
class TypicalValue(Statistic):
    """The column `value` with one value, for a column of type `kind`; float64 for all floats.

    The mean and median of integers are rounded to an integer, halves to even. Among equally
    frequent values it is the least. NaN is missing.
    """

    columns: tuple[str]
    kind: pa.DataType
    strategy: Strategy

    @property
    def _needs_sums(self) -> bool:
        # Columns without a type have no values to count.
        return self.strategy == "mean" or bool(pa.types.is_null(self.kind))

    @property
    def _basis(self) -> Statistic:
        if self._needs_sums:
            return Moments(self.columns)
        # Of the two most frequent values, one may be NaN.
        return ValueCounts(self.columns, max_size=2 if self.strategy == "most_frequent" else None)

    def accumulator(self) -> Accumulator:
        return self._basis.accumulator()

    def merge(self, tables: Sequence[pa.Table]) -> pa.Table:
        return self._basis.merge(tables)

    def finish(self, partitions: Sequence[pa.Table]) -> pa.Table:
        if self._needs_sums:
            sums = merged_sums(partitions)[self.columns[0]]
            return self._table(sums.mean() if sums.count else None)
        if self.strategy == "median":
            return self._table(_median(SortedNumbers(partitions)))
        return self._table(_first([self._basis.finish(partitions)]))

    def stream(self, partials: PartialTables, space: Workspace) -> Iterator[pa.Table]:
        if self._needs_sums:
            yield from super().stream(partials, space)
        elif self.strategy == "median":
            counts = counted(partials, space)
            yield self._table(_median(SortedNumbers(counts, partials.schema, space)))
        else:
            yield self._table(_first(self._basis.stream(partials, space)))

    def _table(self, found: Any) -> pa.Table:
        """Return the result for a value of any type, or None if the column has no values."""
        if found is None or (isinstance(found, float) and math.isnan(found)):
            raise DataError(
                f"column '{self.columns[0]}' has no {self.strategy} in the training rows: they "
                f"have {'no values' if found is None else 'infinite values'} there; "
                "fill it with value=..."
            )
        if pa.types.is_integer(self.kind):
            return pa.table({"value": pa.array([round(found)], self.kind)})
        if pa.types.is_floating(self.kind):
            return pa.table({"value": pa.array([float(found)], pa.float64())})
        return pa.table({"value": pa.array([found], self.kind)})


def _first(tables: Iterable[pa.Table]) -> Any:
    """Return the first value that is not NaN; None if there is none."""
    values = (value for table in tables for value in table["value"].to_pylist())
    return next((value for value in values if value == value), None)


def _median(numbers: SortedNumbers) -> Fraction | float | None:
    if not numbers.count:
        return None
    middle = [(numbers.count - 1) // 2, numbers.count // 2]
    low, high = numbers.at(middle).to_pylist()
    if math.isinf(low) or math.isinf(high):
        return float((low + high) / 2)
    return (Fraction(low) + Fraction(high)) / 2
