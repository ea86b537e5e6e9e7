"""Predictions of an export for files, part by part, in one process."""

from collections.abc import Iterator
from pathlib import Path
from typing import final

import pyarrow as pa

from flambeau.coordination.payloads import Part
from flambeau.data.source import StreamedSource
from flambeau.errors import DataError
from flambeau.inference.export_chain import newest_of, open_chain
from flambeau.inference.loaded_export import ROWS_AT_ONCE, LoadedExport
from flambeau.runs.run_export import open_run_tables


@final
class ExportPrediction:
    """An export, and rows of files with the columns that it takes: raw ones if it has features."""

    def __init__(
        self, place: Path, source: StreamedSource, batch_size: int | None, *, trust: bool
    ) -> None:
        self.source, self.size = source, batch_size or ROWS_AT_ONCE
        self.export = open_export(place, trust=trust)
        binding, known = self.export.description.binding, self.export.description.columns
        wanted = dict.fromkeys([*known, *binding.keys])
        self._columns = [name for name in wanted if name in source.schema.names]
        if not self._columns:
            raise DataError(
                f"the data has none of the columns that {place} takes: {', '.join(known)}; it has "
                f"{', '.join(source.schema.names)}"
            )

    def batches(self, part: Part) -> Iterator[pa.RecordBatch]:
        """Yield keys and predictions of a part, in the order of its rows."""
        for shard in self.source.shards()[part.first : part.last]:
            for records in self.source.read(shard, self._columns):
                for start in range(0, records.num_rows, self.size):
                    yield from self.export.predict(records.slice(start, self.size)).to_batches()


def open_export(place: Path, *, trust: bool = False) -> LoadedExport:
    """Return the newest export at a place, ready to predict."""
    return LoadedExport(open_chain(newest_of(place, None), open_run_tables), trust=trust)
