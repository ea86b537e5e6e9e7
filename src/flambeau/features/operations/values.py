"""Replacement of values by other values."""

from collections.abc import Mapping
from typing import Annotated, Any, Self, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BeforeValidator, StrictBool, StrictInt, StrictStr, model_validator

from flambeau.data.arrow_columns import is_text
from flambeau.features.number_columns import (
    FromNumpy,
    Value,
    fits,
    nulls_of,
    plain_column,
    plain_type,
    scalar_of,
    type_of_values,
)
from flambeau.features.operation import ColumnOperation, State
from flambeau.features.operations.numbers import Convert
from flambeau.features.vocabulary import Vocabulary

_Key = Annotated[StrictBool | StrictInt | StrictStr, FromNumpy]
_KEEP = "keep"


def _pairs(given: Any) -> Any:
    """Return the pairs of a mapping, since keys in JSON can only be texts."""
    if not isinstance(given, Mapping | list | tuple):
        raise ValueError("give a dict such as {'old': 'new'}")
    return tuple(given.items()) if isinstance(given, Mapping) else given


@final
class MapValues(ColumnOperation):
    """Replacement of texts, integers or booleans by the values that `mapping` has for them.

    The values of the mapping are of one type, or None for null. A value that the mapping lacks
    becomes `default`, or null if that is None. With "keep", it stays unchanged, and so does the
    type of the column, which all values of the mapping must fit. Missing values stay missing.
    """

    kind = "map_values"

    mapping: Annotated[tuple[tuple[_Key, Value | None], ...], BeforeValidator(_pairs)]
    default: Value | None = _KEEP

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        keys = [key for key, _ in self.mapping]
        if not keys:
            raise ValueError("mapping={}: give at least one value to replace")
        kinds = {type(key).__name__ for key in keys}
        if len(kinds) > 1:
            raise ValueError(
                f"mapping= has keys of several types: {', '.join(sorted(kinds))}; give one type"
            )
        if len(set(keys)) < len(keys):
            raise ValueError("mapping= has a key twice; give each key one value")
        if not self._is_kept:
            self._type()
        return self

    @property
    def _is_kept(self) -> bool:
        return self.default == _KEEP

    def _type(self) -> pa.DataType:
        """Return the type of results, unless other values are kept."""
        values = [value for _, value in self.mapping]
        given = [value for value in (*values, self.default) if value is not None]
        if not given:
            raise ValueError("mapping= has no values but None, and so has default=; give a value")
        try:
            return type_of_values(given)
        except ValueError as error:
            raise ValueError(f"mapping= and default=: {error}") from None

    def type_of(self, kind: pa.DataType) -> pa.DataType:
        found = plain_type(kind)
        key = self.mapping[0][0]
        expected = {str: is_text, int: pa.types.is_integer, bool: pa.types.is_boolean}[type(key)]
        if not (expected(found) or pa.types.is_null(found)):
            raise TypeError(
                f"mapping= has keys such as {key!r}; give keys of the column's type (texts, "
                "integers or booleans), or Cast it first"
            )
        if not self._is_kept:
            return self._type()
        for _, value in self.mapping:
            if not (value is None or pa.types.is_null(found) or fits(value, found)):
                raise TypeError(
                    f"{value!r} does not fit {found}, which other values keep; give default=None "
                    "or a value in their place"
                )
        return found

    def converter(self, name: str, kind: pa.DataType, state: State) -> Convert:
        found, target = plain_type(kind), self.type_of(kind)
        if pa.types.is_null(found):
            return lambda column: pa.nulls(len(column), target)
        # A key that does not fit the type occurs in no row.
        pairs = [(key, value) for key, value in self.mapping if fits(key, found)]
        vocabulary = Vocabulary(pa.chunked_array([pa.array([key for key, _ in pairs], found)]))
        results = [*(value for _, value in pairs), None if self._is_kept else self.default]
        scalars = [None if each is None else scalar_of(each, target).as_py() for each in results]
        values = pa.array(scalars, target)

        def convert(column: pa.Array) -> pa.Array:
            column = plain_column(column)
            places = vocabulary.places(column)
            known = places >= 0
            if self._is_kept:
                taken = values.take(pa.array(places, mask=~known))
                return pc.if_else(pa.array(known), taken, column)
            rows = np.where(known, places, len(pairs))
            return values.take(pa.array(rows, mask=nulls_of(column)))

        return convert
