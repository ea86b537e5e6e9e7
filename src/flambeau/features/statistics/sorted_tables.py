"""Tables sorted with little memory: sorted runs in files, merged block by block."""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flambeau.features.statistics.statistic import Workspace

#: Columns to sort by, with "ascending" or "descending".
Order = Sequence[tuple[str, str]]

#: A table and its sorted copy are in memory at once, with what the sort itself needs.
_SHARE = 4
#: Runs that are merged at once, and so the blocks in memory: one of each, and a sorted copy.
_RUNS = 32
_FEWEST_ROWS = 256


@final
class SortedTables:
    """The rows of several tables in order; no two rows are equal.

    Columns to sort by may have missing values, which come last, unless they are descending.
    """

    def __init__(self, order: Order, schema: pa.Schema, space: Workspace) -> None:
        self._order, self._schema, self._space = order, schema, space
        self._waiting: list[pa.Table] = []
        self._size = 0
        self._folder: Path | None = None
        self._runs: list[Path] = []
        self._written = 0

    def add(self, table: pa.Table, first: int | None = None) -> None:
        """Add the rows of a table; with `first`, at most that many, the first in order."""
        if first is not None and len(table) > first:
            table = self._sorted([table]).slice(0, first)
        self._waiting.append(table)
        self._size += table.nbytes
        if self._size > self._space.memory // _SHARE:
            self._write()

    def merged(self) -> Iterator[pa.Table]:
        """Return and remove all rows in order, in tables of bounded size."""
        if self._folder is None:
            yield self._sorted(self._waiting)
            self._waiting = []
            return
        try:
            if self._waiting:
                self._write()
            while len(self._runs) > _RUNS:
                first, self._runs = self._runs[:_RUNS], self._runs[_RUNS:]
                self._runs.append(self._write_run(_merge(first, self._order)))
                for path in first:
                    path.unlink()
            yield from _merge(self._runs, self._order)
        finally:
            shutil.rmtree(self._folder)
            self._runs, self._folder = [], None

    def _sorted(self, tables: Sequence[pa.Table]) -> pa.Table:
        if not tables:
            return self._schema.empty_table()
        return in_order(pa.concat_tables(tables), self._order)

    def _write(self) -> None:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="sorted-", dir=self._space.folder))
        table = self._sorted(self._waiting)
        self._waiting, self._size = [], 0
        if len(table):
            self._runs.append(self._write_run(iter([table])))

    def _write_run(self, tables: Iterator[pa.Table]) -> Path:
        """Write a run of blocks that are small enough for a merge."""
        assert self._folder is not None
        path = self._folder / f"{self._written:06}"
        self._written += 1
        most = self._space.memory // (_SHARE * _RUNS)
        with pa.OSFile(str(path), "wb") as file:
            writer = None
            for table in tables:
                writer = writer or pa.ipc.new_stream(file, table.schema)
                rows = max(_FEWEST_ROWS, len(table) * most // max(1, table.nbytes))
                writer.write_table(table.combine_chunks(), max_chunksize=rows)
            assert writer is not None
            writer.close()
        return path


def in_order(table: pa.Table, order: Order) -> pa.Table:
    """Return the rows of a table in order; NaN is greater than numbers."""
    table = table.combine_chunks()
    return table.take(pc.sort_indices(table, order))


def _merge(runs: Sequence[Path], order: Order) -> Iterator[pa.Table]:
    """Return the rows of runs in order: repeatedly, all up to the least last row of a block."""
    blocks = [_blocks(path) for path in runs]
    heads = [next(each) for each in blocks]  # runs are not empty
    while heads:
        ends = in_order(pa.concat_tables([head.slice(len(head) - 1) for head in heads]), order)
        counts = [_rows_up_to(head, ends.slice(0, 1), order) for head in heads]
        ready = [head.slice(0, count) for head, count in zip(heads, counts, strict=True)]
        yield in_order(pa.concat_tables(ready), order)
        left = [head.slice(count) for head, count in zip(heads, counts, strict=True)]
        pairs = [
            (head if len(head) else next(each, None), each)
            for head, each in zip(left, blocks, strict=True)
        ]
        heads = [head for head, _ in pairs if head is not None]
        blocks = [each for head, each in pairs if head is not None]


def _blocks(path: Path) -> Iterator[pa.Table]:
    with pa.OSFile(str(path)) as file:
        for batch in pa.ipc.open_stream(file):
            if batch.num_rows:
                yield pa.Table.from_batches([batch])


def _rows_up_to(block: pa.Table, bound: pa.Table, order: Order) -> int:
    """Return the number of rows of a sorted block that are not after the row `bound`."""
    before = np.zeros(len(block), np.bool_)
    equal = np.ones(len(block), np.bool_)
    for name, direction in order:
        column, value = block[name], bound[name][0]
        less, same = _compared(column, value)
        if direction == "descending":
            less = ~(less | same)
        before |= equal & less
        equal &= same
    return int(np.count_nonzero(before | equal))


def _compared(column: pa.ChunkedArray, value: pa.Scalar) -> tuple[np.ndarray, np.ndarray]:
    """Return masks of values less than and equal to `value`; NaN and then null are greatest.

    (Without missing values or NaN, these are just `<` and `==`.)
    """
    missing = _flags(column.is_null())
    if not value.is_valid:
        return ~missing, missing
    if not pa.types.is_floating(column.type):
        return _flags(pc.less(column, value)), _flags(pc.equal(column, value))
    nan = _flags(pc.is_nan(column))
    if np.isnan(value.as_py()):
        return ~(nan | missing), nan
    return _flags(pc.less(column, value)), _flags(pc.equal(column, value))


def _flags(column: pa.ChunkedArray) -> np.ndarray:
    found: np.ndarray = column.fill_null(False).to_numpy().astype(np.bool_)
    return found
