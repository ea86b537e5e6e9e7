"""Arrow IPC files (also Feather) and streams."""

from collections.abc import Iterator, Sequence
from typing import Any, final

import pyarrow as pa

from flambeau.data.source import Shard, StreamedSource
from flambeau.data.sources.files import is_url, open_random
from flambeau.data.sources.paths import Paths, find_files, reading, require_not_packed
from flambeau.data.sources.record_batches import rows_between
from flambeau.data.sources.schemas import require_same_schema, require_unique_names
from flambeau.data.sources.urls import shown
from flambeau.errors import DataError

SUFFIXES = (".arrow", ".arrows", ".feather", ".ipc")
FILE_MAGIC = b"ARROW1"
_KEPT_OPEN = 8


@final
class ArrowSource(StreamedSource):
    """Record batches, memory-mapped from local files; a shard is a batch of a file, or a stream."""

    def __init__(self, path: Paths) -> None:
        self._files = find_files(path, SUFFIXES)
        require_not_packed(self._files, "Arrow")
        self._opened: dict[str, pa.NativeFile] = {}
        self._shards: list[Shard] = []
        self._schema = self._schema_of(self._files[0])
        require_unique_names(self._schema.names, self._files[0])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": {}}

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def shards(self) -> Sequence[Shard]:
        if not self._shards:
            self._shards = [shard for path in self._files for shard in self._of_file(path)]
        if not self._shards:
            raise DataError(f"the Arrow files have no rows ({shown(self._files[0])}, ...)")
        return self._shards

    def read(
        self, shard: Shard, columns: Sequence[str], start: int = 0, stop: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        fields = [self._schema_of(shard.path).get_field_index(name) for name in columns]
        with reading(shard.path, "Arrow"):
            yield from rows_between(_batches(self._open(shard.path), shard, fields), start, stop)

    def _of_file(self, path: str) -> Iterator[Shard]:
        require_same_schema(self._schema, self._files[0], self._schema_of(path), path)
        with reading(path, "Arrow"):
            rows = list(_rows_of_parts(self._open(path)))
        yield from (Shard(path, part, count) for part, count in enumerate(rows) if count)

    def _schema_of(self, path: str) -> pa.Schema:
        with reading(path, "Arrow"):
            file = self._open(path)
            return (_open_file(file, []) if _is_file(file) else _open_stream(file, [])).schema

    def _open(self, path: str) -> pa.NativeFile:
        """Return the mapped file; remote files are cached, with their fetched blocks."""
        if not is_url(path):
            return pa.memory_map(path)
        self._opened[path] = file = self._opened.pop(path, None) or open_random(path)
        if len(self._opened) > _KEPT_OPEN:
            del self._opened[next(iter(self._opened))]
        return file


def _rows_of_parts(file: pa.NativeFile) -> Iterator[int]:
    if not _is_file(file):
        yield sum(batch.num_rows for batch in _open_stream(file, [0]))
        return
    reader = _open_file(file, [0])
    for part in range(reader.num_record_batches):
        yield reader.get_batch(part).num_rows


def _batches(file: pa.NativeFile, shard: Shard, fields: list[int]) -> Iterator[pa.RecordBatch]:
    if _is_file(file):
        yield _open_file(file, fields).get_batch(shard.part)
    else:
        yield from _open_stream(file, fields)


def _is_file(file: pa.NativeFile) -> bool:
    return bool(file.read_at(len(FILE_MAGIC), 0) == FILE_MAGIC)


def _open_file(file: pa.NativeFile, fields: list[int]) -> pa.ipc.RecordBatchFileReader:
    return pa.ipc.open_file(file, options=_only(fields))


def _open_stream(file: pa.NativeFile, fields: list[int]) -> pa.ipc.RecordBatchStreamReader:
    # A separate stream for each reader, since two of them may be read alternately.
    return pa.ipc.open_stream(file.get_stream(0, file.size()), options=_only(fields))


def _only(fields: list[int]) -> pa.ipc.IpcReadOptions:
    return pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
