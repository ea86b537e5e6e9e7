"""Cutting of a stream of record batches."""

from collections.abc import Iterable, Iterator

import pyarrow as pa

#: Rows of the largest record batch of a source, so that memory does not grow with the file.
BATCH_ROWS = 65_536


def rows_between(
    batches: Iterable[pa.RecordBatch], start: int, stop: int | None
) -> Iterator[pa.RecordBatch]:
    """Yield rows `start` to `stop` of the stream, in batches of at most `BATCH_ROWS` rows."""
    position = 0
    for batch in batches:
        if stop is not None and position >= stop:
            return
        last = batch.num_rows if stop is None else min(stop - position, batch.num_rows)
        for first in range(max(start - position, 0), last, BATCH_ROWS):
            yield batch.slice(first, min(BATCH_ROWS, last - first))
        position += batch.num_rows
