"""Vocabularies: the places of values in a table, by an index of their keys."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Self, final

import numpy as np
import pyarrow as pa

from flambeau.data.arrow_columns import is_text
from flambeau.features.key_places import KeyPlaces, KeyPlacesGroup
from flambeau.features.keys import Keys, is_list, keys_of, plain_values
from flambeau.features.stored_state import batches_of, rows_of, schema_of


@final
class Vocabulary:
    """An index of the places of values in their table; all other values have the place -1.

    It holds keys and places, 18 bytes for each value, and not the values.
    """

    def __init__(self, values: pa.ChunkedArray) -> None:
        self._enter(values.chunks, len(values), values.type)

    @classmethod
    def stored(cls, state: Mapping[str, pa.Table], name: str) -> Self:
        """Return the vocabulary of the column `value` of a table, which is read piece by piece."""
        found = cls.__new__(cls)
        kind = schema_of(state, name).field("value").type
        batches = batches_of(state, name, ["value"])
        found._enter((each.column(0) for each in batches), rows_of(state, name), kind)
        return found

    def _enter(self, chunks: Iterable[pa.Array], size: int, kind: pa.DataType) -> None:
        self.index, first = KeyPlaces(size), 0
        for chunk in chunks:
            self.index.fill(keys_of(chunk), first)
            first += len(chunk)
        self.size, self.type = size, kind

    def places(self, values: pa.Array) -> Keys:
        """Return the place of each value, or -1 for missing and unknown values."""
        if not have_like_keys(values.type, self.type):
            values = values.cast(self.type)
        places = self.index.find(keys_of(values))
        if values.null_count:
            places[values.is_null().to_numpy(zero_copy_only=False)] = -1
        return places


@final
class VocabularyGroup:
    """Vocabularies of several columns of one type, to look up few rows of all columns at once."""

    def __init__(self, vocabularies: Sequence[Vocabulary]) -> None:
        self._group = KeyPlacesGroup([each.index for each in vocabularies])
        self._size = len(vocabularies)

    def places(self, columns: Sequence[pa.Array]) -> Keys:
        """Return the places of the values of all columns, one after the other."""
        values = pa.concat_arrays(columns)
        places = self._group.find(keys_of(values).reshape(self._size, -1)).reshape(-1)
        if values.null_count:
            places[values.is_null().to_numpy(zero_copy_only=False)] = -1
        return places


def have_like_keys(one: pa.DataType, other: pa.DataType) -> bool:
    """Return whether equal values of two types have equal keys."""
    if is_text(one) and is_text(other):
        return True
    types = pa.types
    signed = types.is_signed_integer(one) and types.is_signed_integer(other)
    return one == other or bool(signed)


def with_items(column: pa.Array, change: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Return a column with its values, or the items of its lists, replaced.

    `change` returns the new values for the old ones, which have no dictionary.
    """
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if not is_list(kind):
        return change(column)
    if pa.types.is_fixed_size_list(kind) and column.null_count:
        # Missing lists have items in memory, too, which `flatten` leaves out.
        size = kind.list_size
        items = column.values.slice(column.offset * size, len(column) * size)
        changed = change(plain_values(items))
        return pa.FixedSizeListArray.from_arrays(changed, size, mask=column.is_null())
    return _replaced_items(column, change(plain_values(column)))


def _replaced_items(column: pa.Array, items: pa.Array) -> pa.Array:
    """Return a column of lists with new items in place of its own (which `flatten` returns)."""
    kind = column.type
    if pa.types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(items, kind.list_size)
    lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    bounds = np.zeros(len(column) + 1, np.int64)
    np.cumsum(lengths, out=bounds[1:])
    mask = column.is_null() if column.null_count else None
    return pa.LargeListArray.from_arrays(pa.array(bounds), items, mask=mask)


def list_type(kind: pa.DataType, item: pa.DataType) -> pa.DataType:
    """Return the type of lists of `item` that `with_items` returns for a column of this type."""
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(item, kind.list_size)
    return pa.large_list(item)
