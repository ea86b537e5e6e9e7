"""Numbers and other values of settings and Arrow columns, compared and converted exactly."""

import math
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from pydantic import BeforeValidator, Field, StrictBool, StrictInt, StrictStr

from flambeau.data.arrow_columns import is_text

Array = np.ndarray[Any, Any]


def _from_numpy(given: Any) -> Any:
    return given.tolist() if isinstance(given, np.ndarray | np.generic) else given


#: Conversion of numpy values to Python values.
FromNumpy = BeforeValidator(_from_numpy)
_Finite = Annotated[float, Field(strict=True, allow_inf_nan=False)]
#: A setting that is a number; integers of any size stay integers.
Number = Annotated[StrictInt | _Finite, FromNumpy]
#: A setting that is a value of a column.
Value = Annotated[StrictBool | StrictInt | _Finite | StrictStr, FromNumpy]


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the result of `plain_column` for columns of a type."""
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    return pa.string() if pa.types.is_string_view(kind) else kind


def plain_column(column: pa.Array) -> pa.Array:
    """Return a column without a dictionary; texts get a type that all functions support."""
    if pa.types.is_dictionary(column.type):
        return plain_column(column.dictionary_decode())
    return column.cast(pa.string()) if pa.types.is_string_view(column.type) else column


def number_type(kind: pa.DataType) -> pa.DataType:
    """Return the plain type of a column of numbers; raise `TypeError` for other types."""
    found = plain_type(kind)
    if not (pa.types.is_integer(found) or pa.types.is_floating(found) or pa.types.is_null(found)):
        raise TypeError("give integers or floating-point numbers; Cast makes numbers of others")
    return found


def numbers_of(column: pa.Array) -> Array:
    """Return the numbers of a column in their own type; missing ones are NaN, or 0 for integers."""
    column = plain_column(column)
    if column.null_count and pa.types.is_integer(column.type):
        column = column.fill_null(0)
    numbers: Array = column.to_numpy(zero_copy_only=False)
    return numbers


def floats_of(column: pa.Array) -> Array:
    """Return the numbers of a column as float64; missing ones are NaN."""
    wide = plain_column(column).cast(pa.float64(), safe=False)
    floats: Array = wide.to_numpy(zero_copy_only=False)
    return floats


def comparable_of(column: pa.Array) -> Array:
    """Return the numbers of a column in the type of `least_from`: integers, or float64."""
    return numbers_of(column) if pa.types.is_integer(plain_type(column.type)) else floats_of(column)


def nulls_of(column: pa.Array) -> Array | None:
    """Return a mask of the rows that are null; None if there are none."""
    column = plain_column(column)
    return column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None


def limits(kind: pa.DataType) -> tuple[int, int]:
    """Return the least and the greatest integer of a type."""
    found = np.iinfo(kind.to_pandas_dtype())
    return int(found.min), int(found.max)


def least_from(number: int | float, kind: pa.DataType) -> int | float | None:
    """Return the least number of a type that is not below `number`; None if all are below.

    An integer is at least 2.5 if and only if it is at least 3. Floats are compared as float64.
    """
    if not pa.types.is_integer(kind):
        return _least_float(number)
    low, high = limits(kind)
    if number <= low:
        return low
    return None if number > high else math.ceil(number)


def _least_float(number: int | float) -> float:
    try:
        nearest = float(number)
    except OverflowError:  # an integer; only an infinite float is above it, or none is below
        return math.inf if number > 0 else -math.inf
    return math.nextafter(nearest, math.inf) if nearest < number else nearest


def type_of_values(values: Sequence[bool | int | float | str]) -> pa.DataType:
    """Return the type of a column that can hold all values; raise `ValueError` if there is none.

    Integers become floats if other values are floats, unless they would be rounded.
    """
    kinds = {type(value) for value in values}
    if kinds == {int, float} and all(_is_exact(value) for value in values):
        kinds = {float}
    if len(kinds) > 1:
        names = " and ".join(sorted(kind.__name__ for kind in kinds))
        raise ValueError(f"there are {names} values; give values of one type")
    if kinds != {int}:
        return {str: pa.string(), bool: pa.bool_(), float: pa.float64()}[kinds.pop()]
    for kind in (pa.int64(), pa.uint64()):
        if all(fits(value, kind) for value in values):
            return kind
    raise ValueError("there are integers that neither int64 nor uint64 can hold")


def _is_exact(value: Any) -> bool:
    try:
        return bool(float(value) == value)
    except OverflowError:
        return False


def scalar_of(value: bool | int | float | str | bytes, kind: pa.DataType) -> pa.Scalar:
    """Return a value as a scalar of a type; raise `TypeError` if it does not fit."""
    if not fits(value, kind):
        raise TypeError(f"{value!r} does not fit {kind}; give a value of that type, or Cast first")
    if pa.types.is_integer(kind):
        return pa.scalar(int(value), kind)
    if pa.types.is_floating(kind):
        return pa.scalar(kind.to_pandas_dtype()(value), kind)
    return pa.scalar(value, kind)


def fits(value: bool | int | float | str | bytes, kind: pa.DataType) -> bool:
    """Return whether a type can hold a value; floats may round it, but not to infinity."""
    if isinstance(value, str | bytes):
        return is_text(kind)
    if isinstance(value, bool) or pa.types.is_boolean(kind):
        return isinstance(value, bool) and bool(pa.types.is_boolean(kind))
    if pa.types.is_integer(kind):
        low, high = limits(kind)
        return low <= value <= high and value == int(value)
    if not pa.types.is_floating(kind):
        return False
    largest = float(np.finfo(kind.to_pandas_dtype()).max)
    return abs(value) <= largest or abs(value) == math.inf
