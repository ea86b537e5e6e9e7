"""Exact quantiles of a column, from counts of its values."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flambeau.features.statistics.partial_tables import PartialTables
from flambeau.features.statistics.sorted_tables import SortedTables
from flambeau.features.statistics.statistic import Accumulator, Statistic, Workspace
from flambeau.features.statistics.value_counts import ValueCounts, counted

_ORDER = (("value", "ascending"),)


@final
@dataclass(frozen=True)
class QuantileEdges(Statistic):
    """The column `edge`: values that divide the numbers of one column into `parts` of equal size.

    Of n numbers in order, edge k is the one at n * k // parts. Equal edges are merged, and the
    least number is not an edge, since nothing is below it. NaN is missing.
    """

    columns: tuple[str]
    parts: int

    def accumulator(self) -> Accumulator:
        return ValueCounts(self.columns).accumulator()

    def merge(self, tables: Sequence[pa.Table]) -> pa.Table:
        return ValueCounts(self.columns).merge(tables)

    def finish(self, partitions: Sequence[pa.Table]) -> pa.Table:
        return self._edges(SortedNumbers(partitions))

    def stream(self, partials: PartialTables, space: Workspace) -> Iterator[pa.Table]:
        yield self._edges(SortedNumbers(counted(partials, space), partials.schema, space))

    def _edges(self, numbers: "SortedNumbers") -> pa.Table:
        cuts = [numbers.count * part // self.parts for part in range(1, self.parts)]
        # The least number is looked up to exclude it.
        values = numbers.at([0, *cuts] if numbers.count else [])
        return pa.table({"edge": values.unique().slice(1)})


@final
class SortedNumbers:
    """All numbers of a column in order, from tables that have each of its values once, with counts.

    Without a workspace they are sorted in memory.
    """

    def __init__(
        self,
        tables: Iterable[pa.Table],
        schema: pa.Schema | None = None,
        space: Workspace | None = None,
    ) -> None:
        self._tables: SortedTables | None = None
        #: Count of all numbers.
        self.count = 0
        for table in tables:
            if self._tables is None:
                space = space or Workspace(Path(), sys.maxsize)
                self._tables = SortedTables(_ORDER, schema or table.schema, space)
            if pa.types.is_floating(table["value"].type):
                table = table.filter(pc.invert(pc.is_nan(table["value"])))
            self.count += pc.sum(table["count"]).as_py() or 0
            self._tables.add(table)

    def at(self, positions: Sequence[int]) -> pa.ChunkedArray:
        """Return the numbers at ascending positions from 0 to `count` - 1; call it only once."""
        assert self._tables is not None
        wanted, before, found = np.asarray(positions, np.int64), 0, []
        for table in self._tables.merged():
            ends = before + np.cumsum(table["count"].to_numpy())
            here = np.searchsorted(ends, wanted, side="right")
            chosen = here[(here < len(table)) & (wanted >= before)]
            found.append(table["value"].take(pa.array(chosen)))
            before = int(ends[-1]) if len(ends) else before
        return pa.chunked_array([chunk for each in found for chunk in each.chunks], found[0].type)
