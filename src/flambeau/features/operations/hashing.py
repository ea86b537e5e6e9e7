"""64-bit ids of values without a vocabulary: hashes, and crosses of columns."""

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from flambeau.data.arrow_columns import is_text
from flambeau.data.text_hash import combine, hash_columns, hash_texts, salt_of
from flambeau.errors import DataError
from flambeau.features.keys import Keys, is_list, keys_of, plain_values
from flambeau.features.number_columns import plain_column
from flambeau.features.operation import (
    FEW_ROWS,
    Arrays,
    ColumnOperation,
    Operation,
    State,
    Step,
    TrainingRows,
)
from flambeau.features.selection import Columns, select
from flambeau.features.vocabulary import list_type, with_items

_LARGEST = (1 << 63) - 1


@final
class Hash(ColumnOperation):
    """Int64 ids of texts and integers, or of items of lists, by hash.

    Texts have the same ids as in `fb.fit` and the Criteo reader: hashes with `salt`, by default the
    column's name. Integers are their own ids, unless `salt` or `modulo` is given: then they are
    hashed, too. With `modulo` ids are from 0 to `modulo` - 1. Missing values stay missing; with
    `empty_is_missing`, so do empty texts, as in Criteo's logs.
    """

    kind = "hash"

    salt: str | None = None
    modulo: int | None = Field(default=None, ge=1, le=_LARGEST)
    empty_is_missing: bool = False

    def type_of(self, kind: pa.DataType) -> pa.DataType:
        item = flat_type(kind)
        if not (is_text(item) or pa.types.is_integer(item) or pa.types.is_null(item)):
            raise TypeError("give texts or integers, or Cast it first")
        return list_type(kind, pa.int64()) if is_list(kind) else pa.int64()

    def converter(self, name: str, kind: pa.DataType, state: State) -> Callable[..., pa.Array]:
        salt = name if self.salt is None else self.salt
        as_they_are = self.salt is None and self.modulo is None

        def ids_of(values: pa.Array) -> pa.Array:
            ids = _ids(values, salt)
            if not as_they_are and not is_text(values.type):
                ids = combine([ids], salt)
            return pa.array(_below(ids, self.modulo), mask=self._left_out(values))

        def ids_of_column(column: pa.Array) -> pa.Array:
            if pa.types.is_dictionary(column.type) and not is_list(column.type.value_type):
                return ids_of(column.dictionary).take(column.indices)
            return with_items(column, ids_of)

        return ids_of_column

    def bind(self, schema: pa.Schema, state: State) -> Step:
        pairs = self.outputs(schema).items()
        names, outs = [name for name, _ in pairs], [out for _, out in pairs]
        one_by_one = super().bind(schema, state)
        kinds = {schema.field(name).type for name in names}
        if len(names) < 2 or len(kinds) > 1 or not is_text(kinds.pop()):
            return one_by_one
        salts = np.array([salt_of(name if self.salt is None else self.salt) for name in names])

        def step(arrays: Arrays, rows: TrainingRows | None) -> dict[str, pa.Array]:
            if len(arrays[names[0]]) > FEW_ROWS:
                return one_by_one(arrays, rows)
            together = self._together([arrays[name] for name in names], salts)
            return dict(zip(outs, together, strict=True))

        return step

    def _together(self, columns: Sequence[pa.Array], salts: Keys) -> list[pa.Array]:
        """Return the ids of columns of texts of one type with few rows."""
        texts, rows = pa.concat_arrays(columns), len(columns[0])
        ids = _below(hash_columns(texts, salts).reshape(-1), self.modulo)
        whole = pa.array(ids, mask=self._left_out(texts))
        return [whole.slice(number * rows, rows) for number in range(len(columns))]

    def _left_out(self, values: pa.Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return a mask of the values without an id."""
        if self.empty_is_missing and is_text(values.type):
            empty: np.ndarray[Any, np.dtype[np.bool_]] = pc.equal(
                pc.fill_null(pc.binary_length(plain_column(values)), 0), 0
            ).to_numpy(zero_copy_only=False)
            return empty
        return _missing(values)


@final
class Cross(Operation):
    """One column of int64 ids from several columns: rows with equal values have equal ids.

    Ids are the same as those of `crosses=` in `fb.fit`: they depend on the name `out`, and texts
    are hashed with their column's name. Lists have at most one item; an empty list is a missing
    value. A row with a missing value has no id. With `modulo` ids are from 0 to `modulo` - 1.
    """

    kind = "cross"

    columns: Columns
    out: str = Field(min_length=1)
    modulo: int | None = Field(default=None, ge=1, le=_LARGEST)

    def __init__(self, columns: str | Sequence[str] = (), **values: Any) -> None:
        super().__init__(**{"columns": columns, **values})

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    def reads(self, schema: pa.Schema) -> tuple[str, ...]:
        names = select(self.columns, schema.names)
        if len(names) < 2:
            found = f"only {names[0]}" if names else "none"
            raise DataError(f"{self}: '{self.out}' is made of two columns or more, not of {found}")
        return names

    def writes(self, schema: pa.Schema) -> dict[str, pa.DataType]:
        for name in self.reads(schema):
            kind, types = schema.field(name).type, pa.types
            try:
                item = flat_type(kind)
            except TypeError as error:
                raise self._refusal(f"column '{name}' holds {kind}: {error}") from None
            integers = types.is_integer(item) or types.is_boolean(item) or types.is_temporal(item)
            if not (integers or is_text(item) or types.is_null(item)):
                raise self._refusal(f"column '{name}' holds {kind}")
        return {self.out: pa.int64()}

    def _refusal(self, found: str) -> DataError:
        return DataError(
            f"{self}: '{self.out}' is made of columns with one id (or none) in a row, and {found}; "
            "give columns with one text or integer in a row, or Cast it first"
        )

    def bind(self, schema: pa.Schema, state: State) -> Step:
        names = self.reads(schema)

        def step(arrays: Arrays, rows: TrainingRows | None) -> dict[str, pa.Array]:
            members = [self._one_each(name, arrays[name]) for name in names]
            pairs = zip(members, names, strict=True)
            ids = combine([_ids(values, name) for values, name in pairs], self.out)
            missing = np.logical_or.reduce([_missing(values) for values in members])
            return {self.out: pa.array(_below(ids, self.modulo), mask=missing)}

        return step

    def _one_each(self, name: str, column: pa.Array) -> pa.Array:
        """Return the value of each row, which a list may hold; null where there is none."""
        if not is_list(column.type):
            return plain_values(column)
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
        if (lengths > 1).any():
            raise self._refusal(f"column '{name}' has several in row {int((lengths > 1).argmax())}")
        places = np.cumsum(lengths) - 1
        return plain_values(column).take(pa.array(places, mask=lengths == 0))


def flat_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of values, or of the items of lists; raise `TypeError` for lists of lists."""
    kind = _decoded(kind)
    if not is_list(kind):
        return kind
    item = _decoded(kind.value_type)
    if is_list(item):
        raise TypeError("lists may hold values, and no other lists")
    return item


def _decoded(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _ids(values: pa.Array, salt: str) -> Keys:
    """Return the hashes of texts, or the bits of integers; arbitrary for missing values."""
    if pa.types.is_null(values.type):
        return np.zeros(len(values), np.int64)
    return hash_texts(values, salt) if is_text(values.type) else keys_of(values)


def _missing(values: pa.Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
    found: np.ndarray[Any, np.dtype[np.bool_]] = values.is_null().to_numpy(zero_copy_only=False)
    return found


def _below(ids: Keys, modulo: int | None) -> Keys:
    """Reduce ids to the range from 0 to `modulo` - 1, as unsigned integers."""
    if modulo is None:
        return ids
    return (ids.view(np.uint64) % np.uint64(modulo)).view(np.int64)
