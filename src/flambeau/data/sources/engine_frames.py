"""The part of a data frame that an engine has left with this worker, and what it knows of others'.

Every worker has rows of its own: it cannot read those of others, and has no need to.
"""

from collections.abc import Iterator, Sequence
from typing import Any, final

import pyarrow as pa

from flambeau.data.source import Shard, StreamedSource
from flambeau.data.sources.record_batches import rows_between
from flambeau.errors import DataError


@final
class EngineFrameSource(StreamedSource):
    """Shards are the Arrow batches of a mapped file; `Shard.path` is the rank of their worker.

    `rows` are those of all shards by worker, `descriptor` is the file of this one (`home`), if any
    rows came here.
    """

    def __init__(
        self,
        descriptor: int | None,
        rows: Sequence[Sequence[int]],
        home: int,
        columns: Sequence[str],
    ) -> None:
        self._descriptor, self._home, self._columns = descriptor, home, tuple(columns)
        self.homes = tuple(tuple(each) for each in rows)
        self._reader: pa.ipc.RecordBatchFileReader | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_reader": None}

    @property
    def schema(self) -> pa.Schema:
        if self._descriptor is None:
            return pa.schema([(name, pa.null()) for name in self._columns])
        return self._open().schema

    def shards(self) -> Sequence[Shard]:
        """Those of all workers, one worker after the other."""
        shards = [
            Shard(str(home), part, count)
            for home, counts in enumerate(self.homes)
            for part, count in enumerate(counts)
        ]
        if not shards:
            raise DataError("the data frame has no rows")
        return shards

    def read(
        self, shard: Shard, columns: Sequence[str], start: int = 0, stop: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Rows of a shard that is here; of another worker's, none."""
        if shard.path == str(self._home):
            batch = self._open().get_batch(shard.part).select(list(columns))
            yield from rows_between(iter([batch]), start, stop)

    def _open(self) -> pa.ipc.RecordBatchFileReader:
        if self._reader is None:
            assert self._descriptor is not None
            # Opened anew by its number: the file has no name.
            self._reader = pa.ipc.open_file(pa.memory_map(f"/dev/fd/{self._descriptor}"))
        return self._reader
