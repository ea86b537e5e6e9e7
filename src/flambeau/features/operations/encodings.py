"""Encodings of values as numbers: one-hot, by frequency, or by the mean of a target."""

from collections.abc import Callable
from typing import Any, Literal, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from flambeau.config.settings import nearest
from flambeau.errors import ConfigError, DataError
from flambeau.features.keys import is_list, keys_of, plain_values
from flambeau.features.operation import Arrays, ColumnOperation, State, Step, TrainingRows
from flambeau.features.operations.hashing import flat_type
from flambeau.features.statistics.statistic import Statistic
from flambeau.features.statistics.target_means import TargetMeans, folds_of_rows, smoothed_means
from flambeau.features.statistics.value_counts import ValueCounts
from flambeau.features.stored_state import rows_of
from flambeau.features.vocabulary import Vocabulary, list_type, with_items


@final
class OneHot(ColumnOperation):
    """One-hot lists of numbers: 1 at the place of the value, 0 elsewhere.

    The most frequent value has the first place. A list has a 1 for each of its items. Values that
    are missing, new, occur fewer than `min_count` times or are not among the `max_size` most
    frequent become all zeros. Results are float32 [values].
    """

    kind = "one_hot"

    min_count: int = Field(default=1, ge=1)
    max_size: int | None = Field(default=None, ge=1)

    def statistics(self, schema: pa.Schema) -> dict[str, Statistic]:
        names = _counted(self, schema)
        return {name: ValueCounts((name,), self.min_count, self.max_size) for name in names}

    def type_of(self, kind: pa.DataType) -> pa.DataType:
        _require_keys(kind)
        return pa.list_(pa.float32())

    def fitted_writes(self, schema: pa.Schema, state: State) -> dict[str, pa.DataType]:
        sizes = {out: rows_of(state, name) for name, out in self.outputs(schema).items()}
        return {out: pa.list_(pa.float32(), sizes[out]) for out in self.writes(schema)}

    def converter(self, name: str, kind: pa.DataType, state: State) -> Callable[..., pa.Array]:
        vocabulary = Vocabulary.stored(state, name)
        if not vocabulary.size:
            raise DataError(
                f"{self}: column '{name}' has no value that occurs {self.min_count} times or more "
                "in the training rows; give a smaller min_count, or leave the column out"
            )

        def convert(column: pa.Array) -> pa.Array:
            places = vocabulary.places(plain_values(column))
            rows = _rows_of_items(column) if is_list(column.type) else np.arange(len(column))
            known = places >= 0
            hot = np.zeros((len(column), vocabulary.size), np.float32)
            hot[rows[known], places[known]] = 1
            return pa.FixedSizeListArray.from_arrays(pa.array(hot.reshape(-1)), vocabulary.size)

        return convert


@final
class CountEncode(ColumnOperation):
    """Counts of values, or of items of lists, in the training rows, as float32.

    With `how="frequency"`, results are fractions of all values that are not missing. Missing and
    new values become 0.
    """

    kind = "count_encode"

    how: Literal["count", "frequency"] = "count"

    def statistics(self, schema: pa.Schema) -> dict[str, Statistic]:
        return {name: ValueCounts((name,)) for name in _counted(self, schema)}

    def type_of(self, kind: pa.DataType) -> pa.DataType:
        _require_keys(kind)
        return list_type(kind, pa.float32()) if is_list(kind) else pa.float32()

    def converter(self, name: str, kind: pa.DataType, state: State) -> Callable[..., pa.Array]:
        vocabulary = Vocabulary.stored(state, name)
        counts = state[name]["count"].to_numpy()
        shares = counts / max(1, counts.sum()) if self.how == "frequency" else counts
        codes = np.append(shares, 0).astype(np.float32)  # the last one is for the place -1
        return lambda column: with_items(
            column, lambda values: pa.array(codes[vocabulary.places(values)])
        )


@final
class TargetEncode(ColumnOperation):
    """The mean of `target` over the training rows with the same value, as float32.

    Means are smoothed towards the prior, the mean of all rows, as if by `smoothing` more rows with
    that mean: (sum + smoothing * prior) / (count + smoothing). Missing and new values become the
    prior. Training rows are divided into `folds`, and each row uses the means of the other folds
    only, so that its own target does not leak into its features. The target is read for fitting
    only.
    """

    kind = "target_encode"
    out_of_fold = True

    target: str
    smoothing: float = Field(default=20.0, ge=0, allow_inf_nan=False)
    folds: int = Field(default=5, ge=2, le=100)

    def statistics(self, schema: pa.Schema) -> dict[str, Statistic]:
        names = _counted(self, schema)
        if self.target not in schema.names:
            hint = nearest(self.target, schema.names)
            raise DataError(f"{self}: there is no column '{self.target}' for target=; {hint}")
        if self.target in names:
            raise ConfigError(f"{self}: '{self.target}' is the target, and cannot be encoded by it")
        kind = schema.field(self.target).type
        types = pa.types
        numeric = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
        if not (numeric or types.is_boolean(kind)):
            raise DataError(
                f"{self}: target='{self.target}' holds {kind}; give a column of numbers, or Cast it"
            )
        return {name: TargetMeans((name, self.target), self.folds) for name in names}

    def type_of(self, kind: pa.DataType) -> pa.DataType:
        if is_list(kind):
            raise TypeError("give columns with one value in a row")
        _require_keys(kind)
        return pa.float32()

    def converter(self, name: str, kind: pa.DataType, state: State) -> Callable[..., pa.Array]:
        vocabulary = Vocabulary(state[name]["value"].slice(0, len(state[name]) - 1))
        means = smoothed_means(state[name], self.smoothing)  # the last row is for the place -1

        def convert(column: pa.Array, left_out: Any) -> pa.Array:
            return pa.array(means[vocabulary.places(plain_values(column)), left_out])

        return convert

    def bind(self, schema: pa.Schema, state: State) -> Step:
        converters = [
            (name, out, self.converter(name, schema.field(name).type, state))
            for name, out in self.outputs(schema).items()
        ]

        def step(arrays: Arrays, rows: TrainingRows | None) -> dict[str, pa.Array]:
            left_out: Any = self.folds  # none of them
            if rows is not None and converters:
                count = len(arrays[converters[0][0]])
                left_out = folds_of_rows(rows.shard, rows.first, count, self.folds)
            return {out: convert(arrays[name], left_out) for name, out, convert in converters}

        return step


def _counted(operation: ColumnOperation, schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns of an operation; raise an error if their values cannot be counted."""
    operation.writes(schema)  # raises for other types
    names = operation.reads(schema)
    for name in names:
        if pa.types.is_null(flat_type(schema.field(name).type)):
            raise DataError(f"{operation}: column '{name}' has no values in the training rows")
    return names


def _require_keys(kind: pa.DataType) -> None:
    """Raise a `TypeError` for values that cannot be counted."""
    item = flat_type(kind)
    if not pa.types.is_null(item):
        keys_of(pa.array([], item))


def _rows_of_items(column: pa.Array) -> np.ndarray[Any, Any]:
    """Return the row number of each item of lists."""
    lengths = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    return np.repeat(np.arange(len(column)), lengths)
