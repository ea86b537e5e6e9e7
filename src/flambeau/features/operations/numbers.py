"""Operations on numbers: missing values, ranges, scales and buckets."""

import math
from collections.abc import Callable
from typing import Annotated, Any, Literal, Self, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, model_validator

from flambeau.data.arrow_columns import is_text
from flambeau.errors import DataError
from flambeau.features.number_columns import (
    Array,
    FromNumpy,
    Number,
    Value,
    comparable_of,
    floats_of,
    least_from,
    limits,
    nulls_of,
    number_type,
    numbers_of,
    plain_column,
    plain_type,
    scalar_of,
    type_of_values,
)
from flambeau.features.operation import (
    FEW_ROWS,
    Arrays,
    ColumnOperation,
    State,
    Step,
    TrainingRows,
)
from flambeau.features.operations.log_kernel import logarithms
from flambeau.features.statistics.moments import Moments
from flambeau.features.statistics.quantiles import QuantileEdges
from flambeau.features.statistics.statistic import Statistic
from flambeau.features.statistics.typical_value import Strategy, TypicalValue

Convert = Callable[[pa.Array], pa.Array]


@final
class FillMissing(ColumnOperation):
    """Replacement of missing values: nulls and, in floats, NaN. Columns keep their types.

    They become `value`, which must fit the columns, or, with a `strategy`, the mean, the median or
    the most frequent value of each column in the training rows. The mean and median of integers are
    rounded to an integer, halves to even. Among equally frequent values the least is used.
    """

    kind = "fill_missing"

    value: Value | None = None
    strategy: Strategy | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.value is None) == (self.strategy is None):
            raise ValueError(
                "give either value=, such as 0 or '', or strategy=, which is 'mean', 'median' or "
                "'most_frequent'"
            )
        if self.value is not None:
            type_of_values([self.value])
        return self

    def type_of(self, kind: pa.DataType) -> pa.DataType:
        found = plain_type(kind)
        if self.value is not None:
            found = type_of_values([self.value]) if pa.types.is_null(found) else found
            scalar_of(self.value, found)
            return found
        if self.strategy != "most_frequent":
            return pa.float64() if pa.types.is_null(found) else number_type(found)
        if pa.types.is_null(found):
            raise TypeError("the type of its values is not known; Cast it first")
        return found if is_text(found) or pa.types.is_boolean(found) else number_type(found)

    def statistics(self, schema: pa.Schema) -> dict[str, Statistic]:
        if self.strategy is None:
            return {}
        kinds = {name: plain_type(schema.field(name).type) for name in self.reads(schema)}
        return {name: TypicalValue((name,), kind, self.strategy) for name, kind in kinds.items()}

    def converter(self, name: str, kind: pa.DataType, state: State) -> Convert:
        found = self.type_of(kind)
        filling = scalar_of(self._filling(name, found, state), found)

        def convert(column: pa.Array) -> pa.Array:
            column = plain_column(column)
            if not column.null_count and not pa.types.is_floating(found):
                return column
            return pc.if_else(column.is_null(nan_is_null=True), filling, column.cast(found))

        return convert

    def _filling(self, name: str, kind: pa.DataType, state: State) -> Any:
        if self.strategy is None:
            return self.value
        value = state[name]["value"][0].as_py()
        # The column may have held floats in the training rows.
        return round(value) if pa.types.is_integer(kind) else value


@final
class Clip(ColumnOperation):
    """Limits of numbers: those below `low` become `low`, those above `high` become `high`.

    Columns keep their types, and missing numbers stay missing. For integers, a bound such as 0.5 is
    rounded into the range: 1 for `low`, 0 for `high`. For floats, it is rounded to the nearest
    float of their type.
    """

    kind = "clip"

    low: Number | None = None
    high: Number | None = None

    @model_validator(mode="after")
    def _some_range(self) -> Self:
        if self.low is None and self.high is None:
            raise ValueError("give low=, high= or both")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"low={self.low} is above high={self.high}; give the lesser as low=")
        return self

    def type_of(self, kind: pa.DataType) -> pa.DataType:
        found = number_type(kind)
        if not pa.types.is_null(found):
            self._bounds(found)
        return found

    def _bounds(self, kind: pa.DataType) -> tuple[Any, Any]:
        """Return the bounds as numbers of a type."""
        dtype = kind.to_pandas_dtype()
        if pa.types.is_floating(kind):
            low = -math.inf if self.low is None else self.low
            high = math.inf if self.high is None else self.high
            return tuple(dtype(scalar_of(bound, kind).as_py()) for bound in (low, high))
        least, greatest = limits(kind)
        low = least if self.low is None else max(math.ceil(self.low), least)
        high = greatest if self.high is None else min(math.floor(self.high), greatest)
        if low > high:
            raise TypeError(f"no {kind} is in the range from low={self.low} to high={self.high}")
        return dtype(low), dtype(high)

    def converter(self, name: str, kind: pa.DataType, state: State) -> Convert:
        found = number_type(kind)
        if pa.types.is_null(found):
            return plain_column
        low, high = self._bounds(found)

        def convert(column: pa.Array) -> pa.Array:
            numbers = numbers_of(column)
            numbers = np.where(numbers < low, low, numbers)
            numbers = np.where(numbers > high, high, numbers)
            return pa.array(numbers, found, mask=nulls_of(column))

        return convert


@final
class Log(ColumnOperation):
    """The logarithm log(1 + max(x, 0)) of numbers x, as float32. Missing numbers become 0."""

    kind = "log"

    def type_of(self, kind: pa.DataType) -> pa.DataType:
        number_type(kind)
        return pa.float32()

    def converter(self, name: str, kind: pa.DataType, state: State) -> Convert:
        return _logarithms

    def bind(self, schema: pa.Schema, state: State) -> Step:
        outputs = self.outputs(schema)
        names, outs = list(outputs), list(outputs.values())
        one_by_one = super().bind(schema, state)
        if len(names) < 2 or len({schema.field(name).type for name in names}) > 1:
            return one_by_one

        def step(arrays: Arrays, rows: TrainingRows | None) -> dict[str, pa.Array]:
            columns = [arrays[name] for name in names]
            count = len(columns[0])
            if count > FEW_ROWS:
                return one_by_one(arrays, rows)
            whole = _logarithms(pa.concat_arrays(columns))
            return {out: whole.slice(place * count, count) for place, out in enumerate(outs)}

        return step


def _logarithms(column: pa.Array) -> pa.Array:
    out = np.empty(len(column), np.float32)
    logarithms(floats_of(column), out)
    return pa.array(out)


@final
class Normalize(ColumnOperation):
    """Numbers scaled by statistics of the training rows, as float32. Missing ones stay missing.

    "standard" scales the training rows to mean 0 and standard deviation 1; "min_max" to the range
    from 0 to 1. Columns whose numbers are all the same become 0.
    """

    kind = "normalize"

    how: Literal["standard", "min_max"] = "standard"

    def type_of(self, kind: pa.DataType) -> pa.DataType:
        number_type(kind)
        return pa.float32()

    def statistics(self, schema: pa.Schema) -> dict[str, Statistic]:
        return {"moments": Moments(self.reads(schema))}

    def converter(self, name: str, kind: pa.DataType, state: State) -> Convert:
        rows = {row["column"]: row for row in state["moments"].to_pylist()}
        scale, origin, width = self._scaling(name, rows[name])

        def convert(column: pa.Array) -> pa.Array:
            numbers = floats_of(column)
            with np.errstate(over="ignore"):
                if width:
                    scaled = (numbers * scale - origin) / width
                else:
                    scaled = np.where(np.isnan(numbers), np.nan, 0.0)
                return pa.array(scaled.astype(np.float32), mask=nulls_of(column))

        return convert

    def _scaling(self, name: str, moments: dict[str, Any]) -> tuple[float, float, float]:
        """Return the factor, the offset to subtract and the divisor, applied in this order."""
        if not moments["count"]:
            return 1.0, 0.0, 0.0
        low, high = moments["min"], moments["max"]
        if math.isinf(low) or math.isinf(high):
            raise DataError(
                f"{self}: column '{name}' has infinite numbers in the training rows; Clip it first"
            )
        # The difference of two numbers of this size could overflow.
        scale = 0.25 if max(-low, high) > _HUGE else 1.0
        if self.how == "min_max":
            return scale, low * scale, high * scale - low * scale
        return scale, moments["mean"] * scale, moments["std"] * scale


_HUGE = 2.0**1000


@final
class Bucketize(ColumnOperation):
    """Bucket numbers as int64: 0 below the first edge, 1 from the first edge on, and so on.

    `edges` are increasing numbers. With `quantiles`, they are chosen for each column to make this
    number of buckets, with about the same number of training rows in each; there are fewer buckets
    if a value is very frequent. Missing numbers become null.
    """

    kind = "bucketize"

    edges: Annotated[tuple[Number, ...] | None, FromNumpy] = None
    quantiles: int | None = Field(default=None, ge=2)

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.edges is None) == (self.quantiles is None):
            raise ValueError("give either edges=[...], or quantiles= with a number of buckets")
        if self.edges is None:
            return self
        pairs = zip(self.edges, self.edges[1:], strict=False)
        if not self.edges or any(low >= high for low, high in pairs):
            raise ValueError(f"edges={list(self.edges)}: give at least one, in increasing order")
        return self

    def type_of(self, kind: pa.DataType) -> pa.DataType:
        number_type(kind)
        return pa.int64()

    def statistics(self, schema: pa.Schema) -> dict[str, Statistic]:
        if self.quantiles is None:
            return {}
        kinds = {name: number_type(schema.field(name).type) for name in self.reads(schema)}
        return {
            name: QuantileEdges((name,), self.quantiles)
            for name, kind in kinds.items()
            if not pa.types.is_null(kind)
        }

    def converter(self, name: str, kind: pa.DataType, state: State) -> Convert:
        found = number_type(kind)
        dtype = found.to_pandas_dtype() if pa.types.is_integer(found) else np.float64
        lowest = (least_from(edge, found) for edge in self._edges(name, state))
        edges = np.array([edge for edge in lowest if edge is not None], dtype)

        def convert(column: pa.Array) -> pa.Array:
            numbers = comparable_of(column)
            buckets = np.searchsorted(edges, numbers, side="right").astype(np.int64)
            return pa.array(buckets, mask=_missing(column, numbers))

        return convert

    def _edges(self, name: str, state: State) -> tuple[int | float, ...]:
        if self.edges is not None:
            return self.edges
        return tuple(state[name]["edge"].to_pylist()) if name in state else ()

    def sizes(self, schema: pa.Schema, state: State) -> dict[str, int]:
        """Return the number of buckets of each result."""
        return {
            out: len(self._edges(name, state)) + 1 for name, out in self.outputs(schema).items()
        }


@final
class Threshold(ColumnOperation):
    """1 for numbers that are at least `at_least`, else 0, as float32. Missing ones become null."""

    kind = "threshold"

    at_least: Number

    def type_of(self, kind: pa.DataType) -> pa.DataType:
        number_type(kind)
        return pa.float32()

    def converter(self, name: str, kind: pa.DataType, state: State) -> Convert:
        found = number_type(kind)
        least = least_from(self.at_least, found)

        def convert(column: pa.Array) -> pa.Array:
            numbers = comparable_of(column)
            reached = np.zeros(len(numbers)) if least is None else numbers >= least
            return pa.array(reached.astype(np.float32), mask=_missing(column, numbers))

        return convert


def _missing(column: pa.Array, numbers: Array) -> Array | None:
    """Return a mask of the rows that are null or NaN; None if there are none."""
    if numbers.dtype.kind != "f":
        return nulls_of(column)
    missing: Array = np.isnan(numbers)
    return missing if missing.any() else None
