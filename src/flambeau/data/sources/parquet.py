"""Parquet files; a shard is a row group."""

from collections.abc import Iterator, Sequence
from typing import Any, final

import pyarrow as pa
import pyarrow.parquet as pq

from flambeau.data.source import Shard, StreamedSource
from flambeau.data.sources.files import is_url, open_random
from flambeau.data.sources.paths import Paths, find_files, reading, require_not_packed
from flambeau.data.sources.record_batches import BATCH_ROWS, rows_between
from flambeau.data.sources.schemas import require_same_schema, require_unique_names
from flambeau.data.sources.urls import shown
from flambeau.errors import DataError

SUFFIXES = (".parquet", ".pq")
_KEPT_OPEN = 8
#: Bytes of a column that are read at a time.
_READ_BYTES = 1 << 20


@final
class ParquetSource(StreamedSource):
    """Row groups of Parquet files; all files must have the same columns."""

    def __init__(self, path: Paths) -> None:
        self._files = find_files(path, SUFFIXES)
        require_not_packed(self._files, "Parquet")
        self._opened: dict[str, pq.ParquetFile] = {}
        self._shards: list[Shard] = []
        self._schema = self._open(self._files[0]).schema_arrow
        require_unique_names(self._schema.names, self._files[0])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": {}}

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def shards(self) -> Sequence[Shard]:
        if not self._shards:
            self._shards = [shard for path in self._files for shard in self._row_groups(path)]
        if not self._shards:
            raise DataError(f"the Parquet files have no rows ({shown(self._files[0])}, ...)")
        return self._shards

    def read(
        self, shard: Shard, columns: Sequence[str], start: int = 0, stop: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        with reading(shard.path, "Parquet"):
            # Arrow, like torch, uses OMP_NUM_THREADS threads, which is a worker's share.
            batches = self._open_for_rows(shard.path).iter_batches(
                BATCH_ROWS, row_groups=[shard.part], columns=list(columns), use_threads=True
            )
            yield from rows_between(batches, start, stop)

    def _row_groups(self, path: str) -> Iterator[Shard]:
        file = self._open(path)
        require_same_schema(self._schema, self._files[0], file.schema_arrow, path)
        for part in range(file.num_row_groups):
            rows = file.metadata.row_group(part).num_rows
            if rows:
                yield Shard(path, part, rows)

    def _open_for_rows(self, path: str) -> pq.ParquetFile:
        """Return a separate reader, so that its read-ahead data is freed with it."""
        metadata = self._open(path).metadata
        if is_url(path):  # columns are fetched together, in few requests
            return pq.ParquetFile(open_random(path), metadata=metadata, pre_buffer=True)
        # Row groups may be large. By default, all of their bytes are read before the first row.
        return pq.ParquetFile(path, metadata=metadata, pre_buffer=False, buffer_size=_READ_BYTES)

    def _open(self, path: str) -> pq.ParquetFile:
        """Return the file from a cache of a few open ones; files in use stay open if evicted."""
        file = self._opened.pop(path, None)
        if file is None:
            with reading(path, "Parquet"):
                # Not memory-mapped: the pages of a large file would count as this process's memory.
                file = pq.ParquetFile(open_random(path))
        self._opened[path] = file
        if len(self._opened) > _KEPT_OPEN:
            del self._opened[next(iter(self._opened))]
        return file
