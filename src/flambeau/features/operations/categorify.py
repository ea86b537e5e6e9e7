"""Ids of values, from 0, by a vocabulary of the training rows."""

from collections.abc import Callable, Collection, Sequence
from typing import final

import pyarrow as pa
from pydantic import Field

from flambeau.errors import DataError
from flambeau.features.keys import is_list, item_type, keys_of
from flambeau.features.operation import (
    FEW_ROWS,
    Arrays,
    ColumnOperation,
    State,
    Step,
    TrainingRows,
)
from flambeau.features.statistics.statistic import Statistic
from flambeau.features.statistics.value_counts import ValueCounts
from flambeau.features.stored_state import rows_of
from flambeau.features.vocabulary import (
    Vocabulary,
    VocabularyGroup,
    have_like_keys,
    list_type,
    with_items,
)


@final
class Categorify(ColumnOperation):
    """Ids of values by descending frequency: the most frequent value is 1, the next one 2.

    0 is the id of all values outside the vocabulary: missing values, values that occur fewer than
    `min_count` times, values that are not among the `max_size` most frequent, and new values. With
    `shared`, all columns have one vocabulary. Items of lists get ids within their lists.
    """

    kind = "categorify"
    numbers_values = True

    min_count: int = Field(default=1, ge=1)
    max_size: int | None = Field(default=None, ge=1)
    shared: bool = False

    def statistics(self, schema: pa.Schema) -> dict[str, Statistic]:
        names = self.reads(schema)
        if not self.shared:
            return {name: self._counts((name,)) for name in names}
        kinds = {item_type(schema.field(name).type) for name in names}
        if len(kinds) > 1:
            found = ", ".join(sorted(map(str, kinds)))
            raise DataError(
                f"{self}: columns that share a vocabulary hold {found}; Cast them first"
            )
        return {_SHARED: self._counts(names)}

    def _counts(self, names: tuple[str, ...]) -> Statistic:
        return ValueCounts(names, self.min_count, self.max_size)

    def type_of(self, kind: pa.DataType) -> pa.DataType:
        if is_list(kind) and is_list(kind.value_type):
            raise TypeError("give lists of values, not lists of lists")
        keys_of(pa.array([], item_type(kind)))  # raises a TypeError for types without keys
        return list_type(kind, pa.int64()) if is_list(kind) else pa.int64()

    def converter(self, name: str, kind: pa.DataType, state: State) -> Callable[..., pa.Array]:
        return _numbered(Vocabulary.stored(state, self._table(name)))

    def _table(self, name: str) -> str:
        """Return the name of the state table with the vocabulary of a column."""
        return _SHARED if self.shared else name

    def bind(self, schema: pa.Schema, state: State) -> Step:
        outputs = self.outputs(schema)
        tables = {name: self._table(name) for name in outputs}
        found = {table: Vocabulary.stored(state, table) for table in {*tables.values()}}
        vocabularies = [found[table] for table in tables.values()]
        convert = {name: _numbered(found[table]) for name, table in tables.items()}
        group = _group_of(vocabularies, {schema.field(name).type for name in outputs})

        def step(arrays: Arrays, rows: TrainingRows | None) -> dict[str, pa.Array]:
            columns = [arrays[name] for name in outputs]
            count = len(columns[0])
            if group is None or count > FEW_ROWS:
                return {out: convert[name](arrays[name]) for name, out in outputs.items()}
            whole = pa.array(group.places(columns) + 1)
            outs = enumerate(outputs.values())
            return {out: whole.slice(place * count, count) for place, out in outs}

        return step

    def sizes(self, schema: pa.Schema, state: State) -> dict[str, int]:
        """Return the number of distinct ids of each result, including 0."""
        return {out: rows_of(state, name) + 1 for out, name in self.vocabularies(schema).items()}

    def vocabularies(self, schema: pa.Schema) -> dict[str, str]:
        """Return the name of the table behind each result; its first value has the id 1."""
        return {out: self._table(name) for name, out in self.outputs(schema).items()}


_SHARED = "shared"


def _numbered(vocabulary: Vocabulary) -> Callable[[pa.Array], pa.Array]:
    """Return a function that maps a column's values, or the items of its lists, to ids."""
    return lambda column: with_items(column, lambda values: pa.array(vocabulary.places(values) + 1))


def _group_of(
    vocabularies: Sequence[Vocabulary], kinds: Collection[pa.DataType]
) -> VocabularyGroup | None:
    """Return the vocabularies as a group, if columns of these types can be looked up together."""
    kind = next(iter(kinds), pa.null())
    if len(vocabularies) < 2 or len(kinds) > 1 or pa.types.is_dictionary(kind) or is_list(kind):
        return None
    together = all(have_like_keys(kind, each.type) for each in vocabularies)
    return VocabularyGroup(vocabularies) if together else None
