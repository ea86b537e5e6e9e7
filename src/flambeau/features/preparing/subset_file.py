"""The file with the rows of one subset of a part, written in pieces."""

import os
from pathlib import Path
from typing import final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from flambeau.features.statistics.kernels import uniform_of_rows

#: Rows of a row group in files of features: small enough that loaders distribute them evenly.
GROUP_ROWS = 1 << 16
#: Limits, in rows and bytes, on the rows that are shuffled together, and so are in memory.
WINDOW_ROWS = 4 * GROUP_ROWS
WINDOW_BYTES = 256 << 20


@final
class SubsetFile:
    """A Parquet file of features, written a window of rows at a time.

    With `shuffled`, a seed, rows are shuffled within a window, since neighboring rows of a log are
    alike. The file exists, complete, only once it is closed.
    """

    def __init__(self, target: Path, shuffled: int | None) -> None:
        target.parent.mkdir(exist_ok=True)
        self._target, self._seed = target, shuffled
        self._partial = target.with_name(f".{target.name}.{os.getpid()}")
        self._writer: pq.ParquetWriter | None = None
        self._batches: list[pa.RecordBatch] = []
        self._waiting = self._bytes = 0
        #: Number of rows written so far.
        self.rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        self._batches.append(batch)
        self._waiting += batch.num_rows
        self._bytes += batch.nbytes
        size = GROUP_ROWS if self._seed is None else WINDOW_ROWS
        while self._waiting >= size:
            self._write(size)
        if self._bytes >= WINDOW_BYTES:
            self._write(self._waiting)

    def close(self) -> None:
        """Write the remaining rows, and rename the file to its final name."""
        if self._waiting:
            self._write(self._waiting)
        assert self._writer is not None
        self._writer.close()
        self._partial.replace(self._target)

    def _write(self, rows: int) -> None:
        """Write the first `rows` of the waiting rows."""
        table = pa.Table.from_batches(self._batches)
        rest = table.slice(rows)
        table = table.slice(0, rows)
        self._batches = []
        if self._seed is not None:
            place = uniform_of_rows(0, self._seed, self.rows, rows)
            table = _taken(table, pa.array(np.argsort(place, kind="stable")))
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._partial, table.schema)
        self._writer.write_table(table, row_group_size=GROUP_ROWS)
        self.rows += rows
        self._batches = rest.to_batches()
        self._waiting, self._bytes = len(rest), rest.nbytes


def _taken(table: pa.Table, order: pa.Array) -> pa.Table:
    """Return rows in another order, with a second copy of only one column at a time."""
    columns = [column.combine_chunks().take(order) for column in table.columns]
    return pa.table(columns, schema=table.schema)
