"""Arrow IPC files (also Feather) and streams."""

from collections.abc import Iterator, Sequence
from typing import final

import pyarrow as pa

from flambeau.data.source import Shard, StreamedSource
from flambeau.data.sources.paths import Paths, find_files, reading
from flambeau.data.sources.record_batches import rows_between
from flambeau.data.sources.schemas import require_same_schema, require_unique_names
from flambeau.errors import DataError

SUFFIXES = (".arrow", ".arrows", ".feather", ".ipc")
FILE_MAGIC = b"ARROW1"


@final
class ArrowSource(StreamedSource):
    """Memory-mapped record batches: a shard is a batch of a file, or a whole stream."""

    def __init__(self, path: Paths) -> None:
        self._files = find_files(path, SUFFIXES)
        self._shards: list[Shard] = []
        self._schema = _schema(self._files[0])
        require_unique_names(self._schema.names, self._files[0])

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def shards(self) -> Sequence[Shard]:
        if not self._shards:
            self._shards = [shard for path in self._files for shard in self._of_file(path)]
        if not self._shards:
            raise DataError(f"the Arrow files have no rows ({self._files[0]}, ...)")
        return self._shards

    def read(
        self, shard: Shard, columns: Sequence[str], start: int = 0, stop: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        fields = [_schema(shard.path).get_field_index(name) for name in columns]
        with reading(shard.path, "Arrow"):
            yield from rows_between(_batches(shard, fields), start, stop)

    def _of_file(self, path: str) -> Iterator[Shard]:
        require_same_schema(self._schema, self._files[0], _schema(path), path)
        with reading(path, "Arrow"):
            shards = list(_file_shards(path) if _is_file(path) else _stream_shards(path))
        yield from (shard for shard in shards if shard.rows)


def _file_shards(path: str) -> Iterator[Shard]:
    reader = _open_file(path, [0])
    for part in range(reader.num_record_batches):
        yield Shard(path, part, reader.get_batch(part).num_rows)


def _stream_shards(path: str) -> Iterator[Shard]:
    yield Shard(path, 0, sum(batch.num_rows for batch in _open_stream(path, [0])))


def _batches(shard: Shard, fields: list[int]) -> Iterator[pa.RecordBatch]:
    if _is_file(shard.path):
        yield _open_file(shard.path, fields).get_batch(shard.part)
    else:
        yield from _open_stream(shard.path, fields)


def _schema(path: str) -> pa.Schema:
    with reading(path, "Arrow"):
        return (_open_file(path, []) if _is_file(path) else _open_stream(path, [])).schema


def _is_file(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(len(FILE_MAGIC)) == FILE_MAGIC


def _open_file(path: str, fields: list[int]) -> pa.ipc.RecordBatchFileReader:
    return pa.ipc.open_file(pa.memory_map(path), options=_only(fields))


def _open_stream(path: str, fields: list[int]) -> pa.ipc.RecordBatchStreamReader:
    return pa.ipc.open_stream(pa.memory_map(path), options=_only(fields))


def _only(fields: list[int]) -> pa.ipc.IpcReadOptions:
    return pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
