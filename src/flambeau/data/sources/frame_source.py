"""Source of the rows of a data frame, by number."""

import base64
import mmap
from collections.abc import Sequence
from typing import IO, final

import numpy as np
import pyarrow as pa

from flambeau.config import FrameData
from flambeau.data.frames import as_one_batch
from flambeau.data.source import IndexedSource
from flambeau.data.sources.arrays import consecutive
from flambeau.data.sources.mapping import map_descriptor, map_file
from flambeau.data.sources.shared_files import SharedFiles
from flambeau.errors import DataError


@final
class FrameSource(IndexedSource):
    """Rows of one record batch, returned as Arrow since binders convert the columns."""

    in_memory = True

    def __init__(self, records: pa.RecordBatch) -> None:
        self._records = records

    @property
    def schema(self) -> pa.Schema:
        """Columns and their types."""
        return self._records.schema

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self._records.schema.names)

    def __len__(self) -> int:
        return int(self._records.num_rows)

    def take(self, rows: np.ndarray, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        records = self._records if columns is None else self._records.select(list(columns))
        if consecutive(rows):
            return records.slice(int(rows[0]), len(rows))
        return records.take(pa.array(rows, pa.int64()))


def frame_source(table: pa.Table, name: str) -> FrameSource:
    """Return a source of a frame in this process."""
    return FrameSource(as_one_batch(table, name))


def share_frame(table: pa.Table, files: SharedFiles, name: str) -> FrameData:
    """Write a frame to a file, for other processes; return a reference to it."""
    records = as_one_batch(table, name)

    def write(file: IO[bytes]) -> None:
        with pa.ipc.new_file(file, records.schema) as writer:
            writer.write_batch(records)

    file = files.put(write, name, records.nbytes)
    fields = zip(records.schema, records.columns, strict=True)
    schema = pa.schema(field.with_nullable(column.null_count > 0) for field, column in fields)
    encoded = base64.b64encode(schema.serialize().to_pybytes()).decode()
    return FrameData(fd=file.fd, file=file.path, rows=records.num_rows, arrow_schema=encoded)


def open_frame(data: FrameData) -> FrameSource:
    """Return the source of a frame that was shared with this process, memory-mapped."""
    buffer = pa.py_buffer(_mapped(data))
    return FrameSource(pa.ipc.open_file(buffer).get_batch(0))


def _mapped(data: FrameData) -> mmap.mmap:
    if data.file is not None:
        return map_file(data.file)
    if data.fd is None:
        raise DataError("the data frame refers to neither a file nor a file descriptor")
    return map_descriptor(data.fd)


def schema_of_frame(data: FrameData) -> pa.Schema:
    """Return the columns of a frame with types and nullability, even if the frame is gone."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(data.arrow_schema)))
