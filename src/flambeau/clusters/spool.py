"""Files of the rows that an engine delivers once and that training reads many times."""

import io
import os
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any, final

import pyarrow as pa

from flambeau.errors import DataError


class _ChecksummedWriter(io.BufferedWriter):
    """A writer that keeps the checksum of what it has written."""

    checksum = 0

    def write(self, data: Any, /) -> int:
        self.checksum = zlib.crc32(data, self.checksum)
        return super().write(data)


@final
class Spool(AbstractContextManager["Spool"]):
    """One file per frame, with the Arrow batches received.

    `checksums` has one entry per file: equal rows in equal batches have equal checksums. The files
    have no name: processes that receive their descriptors can read them, and the system removes
    them when the last of these processes has ended, even if it was killed.
    """

    def __init__(self, frames: tuple[str, ...], directory: str | None) -> None:
        self._directory = directory
        self.rows: dict[str, list[int]] = {name: [] for name in frames}
        self.nulls: dict[str, dict[str, int]] = {name: {} for name in frames}
        self.checksums: dict[str, int] = dict.fromkeys(frames, 0)
        self.descriptors: dict[str, int] = {}

    def __exit__(self, *error: object) -> None:
        """Close the files."""
        for descriptor in self.descriptors.values():
            os.close(descriptor)

    @property
    def size(self) -> int:
        """Total size of the files in bytes."""
        return sum(os.fstat(descriptor).st_size for descriptor in self.descriptors.values())

    def fill(self, parts: Iterator[tuple[str, pa.RecordBatch]]) -> None:
        """Write batches, each given with its frame's name; only one is in memory at a time."""
        try:
            files: dict[str, _ChecksummedWriter] = {}
            with ExitStack() as stack:
                writers: dict[str, pa.ipc.RecordBatchFileWriter] = {}
                for name, part in parts:
                    if name not in writers:
                        files[name] = self._open(name)
                        sink = stack.enter_context(pa.PythonFile(files[name], mode="w"))
                        writer = pa.ipc.new_file(sink, part.schema)
                        writers[name] = stack.enter_context(writer)
                    if part.num_rows:
                        writers[name].write_batch(part)
                        self.rows[name].append(part.num_rows)
                        self._count_nulls(name, part)
            self.checksums |= {name: file.checksum for name, file in files.items()}
        except OSError as error:
            raise DataError(
                f"cannot write the data to {self._directory or tempfile.gettempdir()} of a "
                f"worker's machine: {error}; make room there, or give the cluster spool_dir=..."
            ) from error

    def _count_nulls(self, name: str, part: pa.RecordBatch) -> None:
        counts = self.nulls[name]
        for column, values in zip(part.schema.names, part.columns, strict=True):
            if values.null_count:
                counts[column] = counts.get(column, 0) + values.null_count

    def _open(self, name: str) -> _ChecksummedWriter:
        with tempfile.TemporaryFile(dir=self._directory, prefix="flambeau-") as file:
            self.descriptors[name] = os.dup(file.fileno())
        return _ChecksummedWriter(io.FileIO(self.descriptors[name], "w", closefd=False))
