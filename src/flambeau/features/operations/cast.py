"""Casts of columns to another type."""

from typing import Literal, final, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flambeau.errors import DataError
from flambeau.features.number_columns import floats_of, limits, plain_column, plain_type
from flambeau.features.operation import ColumnOperation, State
from flambeau.features.operations.numbers import Convert

TypeName = Literal[
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "bool",
    "text",
]
_TYPES = {
    name: pa.string() if name == "text" else pa.type_for_alias(name) for name in get_args(TypeName)
}


@final
class Cast(ColumnOperation):
    """A cast of columns to integers, floats, booleans ("bool") or texts ("text").

    Texts are parsed as numbers or booleans. Numbers may be rounded to floats; otherwise a value
    that the type cannot represent is an error. Times become the numbers of their units. Missing
    values stay missing: a NaN becomes null unless the type is a float.
    """

    kind = "cast"

    to: TypeName

    def type_of(self, kind: pa.DataType) -> pa.DataType:
        found = plain_type(kind)
        try:
            _cast(pa.array([], found), _TYPES[self.to])
        except pa.ArrowException:
            raise TypeError(f"it cannot be cast to {self.to}") from None
        return _TYPES[self.to]

    def converter(self, name: str, kind: pa.DataType, state: State) -> Convert:
        target = _TYPES[self.to]

        def convert(column: pa.Array) -> pa.Array:
            column = plain_column(column)
            try:
                return _cast(column, target)
            except pa.ArrowException:
                example = _first_failing(column, target)
                raise DataError(
                    f"column '{name}' has the value {example!r}, which cannot be cast to {self.to}"
                ) from None

        return convert


def _cast(column: pa.Array, target: pa.DataType) -> pa.Array:
    """Return the column in another type; raise an `ArrowException` if a value does not fit."""
    types, kind = pa.types, column.type
    if kind == target:
        return column
    if types.is_temporal(kind) and (types.is_integer(target) or types.is_floating(target)):
        column = column.view(pa.int32() if kind.bit_width == 32 else pa.int64())
        kind = column.type
    if types.is_floating(target):
        return _to_floats(column, target)
    if types.is_floating(kind):
        column = column.cast(pa.float64()) if types.is_float16(kind) else column
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
        if types.is_integer(target):
            _require_within(column, target)
    return column.cast(target)


def _to_floats(column: pa.Array, target: pa.DataType) -> pa.Array:
    """Return the nearest floats; finite numbers stay finite."""
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return column.cast(target)
    found = column.cast(target, safe=False)
    if (np.isinf(floats_of(found)) & ~np.isinf(floats_of(column))).any():
        raise pa.ArrowInvalid("a number is too large")
    return found


def _require_within(column: pa.Array, target: pa.DataType) -> None:
    """Raise an error if floats are outside the range of an integer type.

    Arrow's result for them depends on the processor: 2**63 may become the greatest int64.
    """
    low, high = limits(target)
    numbers = floats_of(column)
    if ((numbers < float(low)) | (numbers >= float(high + 1))).any():
        raise pa.ArrowInvalid("a number is too large")


def _first_failing(column: pa.Array, target: pa.DataType) -> object:
    """Return the first value that cannot be cast; the column must have one."""
    while len(column) > 1:
        half = column.slice(0, len(column) // 2)
        try:
            _cast(half, target)
            column = column.slice(len(half))
        except pa.ArrowException:
            column = half
    return column[0].as_py()
