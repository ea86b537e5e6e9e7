"""The rows of a part of the data for each subset of the split, in batches of sufficient size.

Files may have few rows each. Their batches are combined, unless the position of each row in its
file is needed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import pyarrow as pa

from flambeau.coordination.payloads import Part
from flambeau.data.source import StreamedSource
from flambeau.features.operation import TrainingRows
from flambeau.features.splits import SUBSETS, TRAIN, Assign

#: Rows of a batch that is large enough: its work outweighs the fixed cost of a batch.
BATCH_ROWS = 1 << 13

#: A function that is called with numbers of rows read.
OnRows = Callable[[int], None]
#: Rows of one subset; `TrainingRows` is the position of the first one in the training rows.
SubsetRows = tuple[int, pa.RecordBatch, TrainingRows]


@final
@dataclass(frozen=True)
class PartRows:
    """A reader of parts of a source whose rows are divided into subsets.

    Without `assign`, all rows are training rows. With `by_shard`, the training rows of a batch are
    consecutive rows of one shard.
    """

    source: StreamedSource
    assign: Assign | None
    by_shard: bool

    def read(self, part: Part, wanted: Sequence[int], on_rows: OnRows) -> Iterator[SubsetRows]:
        """Return the rows of a part in the wanted subsets, in order within each."""
        waiting = {subset: _Waiting() for subset in wanted}
        for number in range(part.first, part.last):
            for subset, records, place in self._shard(number, on_rows):
                if subset in waiting:
                    yield from waiting[subset].add(subset, records, place)
            if self.by_shard and TRAIN in waiting:
                yield from waiting[TRAIN].all(TRAIN)
        for subset, rows in waiting.items():
            yield from rows.all(subset)

    def _shard(self, number: int, on_rows: OnRows) -> Iterator[SubsetRows]:
        """Return the rows of a shard by subset."""
        source, first, training = self.source, 0, 0
        for batch in source.read(source.shards()[number], source.schema.names):
            on_rows(batch.num_rows)
            for subset, records in _subsets(batch, self.assign, number, first):
                yield subset, records, TrainingRows(number, training)
                training += records.num_rows if subset == TRAIN else 0
            first += batch.num_rows


def _subsets(
    batch: pa.RecordBatch, assign: Assign | None, number: int, first: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Return the rows of each subset that has any."""
    if not batch.num_rows:
        return
    if assign is None:
        yield TRAIN, batch
        return
    subsets = assign(dict(zip(batch.schema.names, batch.columns, strict=True)), number, first)
    for subset in range(len(SUBSETS)):
        chosen: np.ndarray[Any, Any] = subsets == subset
        if chosen.all():
            yield subset, batch
        elif chosen.any():
            yield subset, batch.filter(pa.array(chosen))


@final
@dataclass
class _Waiting:
    """Batches of one subset that are too small on their own."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    place: TrainingRows = field(default_factory=lambda: TrainingRows(0, 0))

    def add(
        self, subset: int, records: pa.RecordBatch, place: TrainingRows
    ) -> Iterator[SubsetRows]:
        """Add a batch; return the waiting rows if there are enough for a batch."""
        if not self.batches:
            self.place = place
        self.batches.append(records)
        self.rows += records.num_rows
        if self.rows >= BATCH_ROWS:
            yield from self.all(subset)

    def all(self, subset: int) -> Iterator[SubsetRows]:
        """Return the waiting rows as one batch."""
        place, first = self.place, 0
        for records in _together(self.batches):
            yield subset, records, TrainingRows(place.shard, place.first + first)
            first += records.num_rows
        self.batches, self.rows = [], 0


def _together(batches: Sequence[pa.RecordBatch]) -> Sequence[pa.RecordBatch]:
    if len(batches) < 2:
        return batches
    found: list[pa.RecordBatch] = (
        pa.Table.from_batches(batches).unify_dictionaries().combine_chunks().to_batches()
    )
    return found
