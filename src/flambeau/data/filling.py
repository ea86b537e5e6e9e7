"""Replacement of missing numbers."""

import copy
from collections.abc import Collection, Iterable, Mapping
from typing import final

import pyarrow as pa
import pyarrow.compute as pc
import torch

from flambeau.config.settings import nearest
from flambeau.data.batch import Column
from flambeau.errors import DataError

Fill = float | Mapping[str, float] | None


@final
class Filling:
    """Replacement of missing numbers in `columns`: one number for all, or some by name.

    Columns that are named hold numbers, even if they are integers. One number for all applies to
    floating-point columns, to integers in one of `stacks` with such columns, and to `numbers`.
    These are integers that the model takes as numbers; without a replacement, none of them may be
    missing.
    """

    def __init__(
        self, fill: Fill, columns: Collection[str], stacks: Iterable[tuple[str, ...]]
    ) -> None:
        named = fill if isinstance(fill, Mapping) else {}
        for name in named:
            if name not in columns:
                raise DataError(f"fill: there is no input '{name}'; {nearest(name, columns)}")
        self._named = bool(named)
        self._fill = dict.fromkeys(columns, fill) if isinstance(fill, float) else named
        self._stacks = tuple(stacks)
        self._numbers: frozenset[str] = frozenset()

    @property
    def columns(self) -> frozenset[str]:
        """Columns in which it may replace values."""
        return frozenset(self._fill)

    def with_numbers(self, numbers: frozenset[str]) -> "Filling":
        """Return the same replacement for a model that takes these columns as numbers."""
        changed = copy.copy(self)
        changed._numbers = numbers
        return changed

    def in_records(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Return the records with integers that may be missing as filled floating-point numbers."""
        self._require_numbers(records)
        for name in self._integers(records.schema):
            numbers = records.column(name).cast(pa.float64(), safe=False)
            place = records.schema.get_field_index(name)
            records = records.set_column(place, name, numbers.fill_null(self._fill[name]))
        return records

    def in_columns(self, columns: dict[str, Column]) -> None:
        """Replace NaN by the given numbers, in place."""
        for name, value in self._fill.items():
            column = columns.get(name)
            if isinstance(column, torch.Tensor) and column.is_floating_point():
                columns[name] = column.nan_to_num(value, torch.inf, -torch.inf)

    def _require_numbers(self, records: pa.RecordBatch) -> None:
        for name in self._numbers.difference(self._fill).intersection(records.schema.names):
            column = records.column(name)
            if column.null_count and pa.types.is_integer(column.type):
                row = pc.index(column.is_null(), True).as_py()
                raise DataError(
                    f"column '{name}' has no value in row {row} of the batch, and the model takes "
                    f"it as numbers: fill={{'{name}': 0.0}} replaces missing values "
                    "(fill=0.0 those of all columns)"
                )

    def _integers(self, schema: pa.Schema) -> set[str]:
        names = set(self._fill) if self._named else self._beside_floats(schema)
        found = (names | self._numbers.intersection(self._fill)).intersection(schema.names)
        return {name for name in found if pa.types.is_integer(schema.field(name).type)}

    def _beside_floats(self, schema: pa.Schema) -> set[str]:
        floats = {field.name for field in schema if pa.types.is_floating(field.type)}
        mixed = (stack for stack in self._stacks if floats.intersection(stack))
        return {name for stack in mixed for name in stack if name in self._fill}
