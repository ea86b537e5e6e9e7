"""Counts of values, the most frequent first."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import pyarrow as pa
import pyarrow.compute as pc

from flambeau.data.arrow_columns import is_text
from flambeau.features.keys import keys_of, plain_values, values_of
from flambeau.features.statistics.disjoint_tables import disjoint_tables
from flambeau.features.statistics.key_counts import KeyCounts
from flambeau.features.statistics.partial_tables import PartialTables
from flambeau.features.statistics.partitions import in_partitions
from flambeau.features.statistics.sorted_tables import SortedTables
from flambeau.features.statistics.statistic import Accumulator, Statistic, Workspace

#: The most frequent first, equally frequent ones in the order of values.
_ORDER = (("count", "descending"), ("value", "ascending"))


@final
@dataclass(frozen=True)
class ValueCounts(Statistic):
    """Columns `value` and `count` of all values of some columns, which have one type.

    Missing values are not counted; for lists, items are. Values that occur fewer than `min_count`
    times are left out. Equally frequent ones are in the order of their values.
    """

    columns: tuple[str, ...]
    min_count: int = 1
    max_size: int | None = None

    def accumulator(self) -> Accumulator:
        return _Counter(self.columns)

    def merge(self, tables: Sequence[pa.Table]) -> pa.Table:
        return self._frequent(added(tables))

    def finish(self, partitions: Sequence[pa.Table]) -> pa.Table:
        whole = pa.concat_tables(partitions)
        order = pc.sort_indices(whole, _ORDER)
        return whole.take(order[: self.max_size])

    def stream(self, partials: PartialTables, space: Workspace) -> Iterator[pa.Table]:
        found = SortedTables(_ORDER, partials.schema, space)
        for table in counted(partials, space):
            found.add(self._frequent(table), self.max_size)
        left = self.max_size
        for table in found.merged():
            yield table.slice(0, left)
            left = None if left is None else left - len(table)
            if left is not None and left <= 0:
                return

    def _frequent(self, table: pa.Table) -> pa.Table:
        if self.min_count == 1:
            return table
        return table.filter(pc.greater_equal(table["count"], self.min_count))


def added(tables: Sequence[pa.Table]) -> pa.Table:
    """Return each value once, with the sum of its counts."""
    whole = pa.concat_tables(tables)
    found = whole.group_by("value", use_threads=False).aggregate([("count", "sum")])
    return found.select(["value", "count_sum"]).rename_columns(["value", "count"])


def counted(partials: PartialTables, space: Workspace) -> Iterator[pa.Table]:
    """Return all values with their counts, each value once, in tables of bounded size."""
    for part in partials.partitions:
        yield from disjoint_tables(partials.tables(part), added, space)


@final
class _Counter(Accumulator):
    """Counts of keys; and texts, which keys do not contain, in the order of their first rows."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns
        self._kind: pa.DataType | None = None
        self._clear()

    def _clear(self) -> None:
        self._counts = KeyCounts()
        self._texts: list[pa.Array] = []
        self._text_bytes = 0

    def add(self, arrays: Mapping[str, pa.Array], shard: int) -> None:
        for name in self._columns:
            self._add(plain_values(arrays[name]))

    def _add(self, values: pa.Array) -> None:
        self._kind = values.type
        if values.null_count:
            values = values.drop_null()
        new = self._counts.add(keys_of(values))
        if is_text(values.type) and new.any():
            self._texts.append(values.filter(pa.array(new)))
            self._text_bytes += self._texts[-1].nbytes

    @property
    def nbytes(self) -> int:
        """Bytes of memory that `take` releases."""
        return (self._counts.nbytes if len(self._counts) else 0) + self._text_bytes

    def take(self) -> dict[int, pa.Table]:
        if self._kind is None:
            return {}
        table = self._table(self._kind)
        self._kind = None
        self._clear()
        return in_partitions(table)

    def _table(self, kind: pa.DataType) -> pa.Table:
        """Return all values and their counts."""
        if is_text(kind):
            values = pa.concat_arrays(self._texts) if self._texts else pa.array([], kind)
            counts = self._counts.counts_of(keys_of(values))
        else:
            keys, counts = self._counts.entries()
            values = values_of(keys, kind)
        return pa.table({"value": values, "count": counts})
