"""Division of a source into parts that are predicted separately, each into a file."""

import itertools
from collections.abc import Iterator

import numpy as np

from flambeau.coordination.payloads import Part
from flambeau.coordination.plans import whole_shards
from flambeau.data.batch import Batch
from flambeau.data.binding import Binder
from flambeau.data.loader import cut, in_order
from flambeau.data.source import IndexedSource, Source, StreamedSource

#: Rows of a part, if shards are not larger: with these, the cost of starting a file is negligible.
PART_ROWS = 1 << 18


def cut_parts(source: Source, part_rows: int = PART_ROWS) -> list[Part]:
    """Return the parts of a source in order: whole shards of about `part_rows` rows together.

    An iterator, which can only be read from its start, is one part.
    """
    if isinstance(source, StreamedSource):
        return whole_shards([shard.rows for shard in source.shards()], part_rows)
    if isinstance(source, IndexedSource):
        bounds = [*range(0, len(source), part_rows), len(source)]
        pairs = itertools.pairwise(bounds)
        return [Part(number, a, b, b - a) for number, (a, b) in enumerate(pairs)]
    return [Part(0, 0, 0, None)]


def batches_of(source: Source, part: Part, binder: Binder, size: int) -> Iterator[Batch]:
    """Yield the rows of a part in order, in batches of `size`."""
    if isinstance(source, StreamedSource):
        shards = source.shards()[part.first : part.last]
        blocks = (
            binder.read(records)
            for shard in shards
            for records in source.read(shard, binder.columns)
        )
        return cut(blocks, size)
    if isinstance(source, IndexedSource):
        return _rows(source, part, binder, size)
    return in_order(source, binder, size)


def _rows(source: IndexedSource, part: Part, binder: Binder, size: int) -> Iterator[Batch]:
    for start in range(part.first, part.last, size):
        rows = np.arange(start, min(start + size, part.last))
        yield binder.prepare(source.take(rows, binder.columns))
