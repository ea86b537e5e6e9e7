"""The most frequent values of a vocabulary, and its size."""

from dataclasses import dataclass
from typing import Self, final

import pyarrow as pa
import pyarrow.compute as pc

from flambeau.features.operation import State
from flambeau.features.stored_state import batches_of, schema_of
from flambeau.features.summaries.column_summary import LOW_IDS


@final
@dataclass(frozen=True)
class VocabularyHead:
    """The first rows of a vocabulary, `value` and `count`; its size, and the sum of all counts."""

    first: pa.Table
    size: int
    total: int

    @classmethod
    def of(cls, table: pa.Table) -> Self:
        """Return the head of a table in memory."""
        return cls.stored({"table": table}, "table")

    @classmethod
    def stored(cls, state: State, name: str) -> Self:
        """Return the head of a table of statistics, which is read piece by piece."""
        first, size, total = schema_of(state, name).empty_table(), 0, 0
        for batch in batches_of(state, name):
            if size < LOW_IDS:
                rows = pa.Table.from_batches([batch.slice(0, LOW_IDS - size)])
                first = pa.concat_tables([first, rows])
            size += batch.num_rows
            total += pc.sum(batch.column("count")).as_py() or 0
        return cls(first, size, total)
