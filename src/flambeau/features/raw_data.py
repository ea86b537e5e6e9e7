"""Rows to fit a pipeline on, or to transform: files, data frames, tables, dicts of columns."""

import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final

import numpy as np
import pyarrow as pa

from flambeau.config import FileData
from flambeau.config.data import is_frame
from flambeau.data.data_kinds import as_files, is_paths
from flambeau.data.frames import as_one_batch, as_table
from flambeau.data.source import Shard, StreamedSource
from flambeau.data.sources.formats import is_self_describing
from flambeau.data.sources.opening import open_source
from flambeau.errors import DataError

#: Rows of a shard of data in memory.
SHARD_ROWS = 1 << 16


def open_rows(data: Any, format: str | None = None) -> StreamedSource:
    """Return the rows of `data` as shards of record batches.

    `format` is the format of files that do not identify their own.
    """
    if isinstance(data, StreamedSource):
        return data
    if is_paths(data):
        data = as_files(data)
    if isinstance(data, FileData):
        source = open_source(raw_files(data, format), _no_code)
        if not isinstance(source, StreamedSource):
            raise DataError(f"{data.path}: features are made of tables, not of images or arrays")
        return source
    if is_frame(data):
        return TableSource(as_one_batch(as_table(data, "the data"), "the data"))
    if isinstance(data, Mapping):
        return TableSource(pa.record_batch({str(name): _array(data[name]) for name in data}))
    raise DataError(
        f"cannot make features of a {type(data).__name__}: give fb.files(...), a path, a data "
        "frame, an Arrow table or a dict of columns"
    )


def raw_files(data: FileData, format: str | None = None) -> FileData:
    """Return files with options for raw columns, if their reader would change columns."""
    name = data.format
    if name is None:
        name = format if format and not is_self_describing(data.path) else None
    options = data.options
    if name == "criteo" and options.get("dense", "log") == "log":
        rest = {key: value for key, value in options.items() if key != "dense"}
        options = {"raw": True, **rest}
    return data.model_copy(update={"format": name, "options": options})


def _no_code(ref: Any) -> Any:
    raise AssertionError("files need no code")


def _array(values: Any) -> pa.Array:
    if isinstance(values, np.ndarray) and values.ndim > 1:
        flat = pa.array(np.ascontiguousarray(values).reshape(-1))
        for size in reversed(values.shape[1:]):
            flat = pa.FixedSizeListArray.from_arrays(flat, size)
        return flat
    found = pa.array(values)
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


class _Digest(io.RawIOBase):
    """A file that keeps only the digest of what is written to it."""

    def __init__(self) -> None:
        self.found = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self.found.update(content)
        return len(memoryview(content).cast("B"))


@final
class TableSource(StreamedSource):
    """A table in memory, in shards of some rows."""

    def __init__(self, records: pa.RecordBatch) -> None:
        self._records = records

    @property
    def schema(self) -> pa.Schema:
        return self._records.schema.remove_metadata()

    def shards(self) -> Sequence[Shard]:
        rows = self._records.num_rows
        return [
            Shard("memory", number, min(SHARD_ROWS, rows - first))
            for number, first in enumerate(range(0, rows, SHARD_ROWS))
        ]

    def digest(self) -> str:
        """Return a digest that identifies these rows."""
        sink = _Digest()
        with pa.ipc.new_stream(sink, self.schema) as stream:
            for shard in self.shards():
                for records in self.read(shard, self.schema.names):
                    stream.write_batch(records)
        return sink.found.hexdigest()

    def read(
        self, shard: Shard, columns: Sequence[str], start: int = 0, stop: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        first = shard.part * SHARD_ROWS
        end = shard.rows if stop is None else min(stop, shard.rows)
        yield self._records.select(list(columns)).slice(first + start, end - start)
