"""The file of one table's rows on one shard: written in pieces, and searched in place.

It is a safetensors file of `ids` [n], `values` [n, dim], `state` [n, width], `slots` (the hash
index of ids; see `table_slots`), `crc32` (a checksum of the header and of each 64 KiB of each other
tensor) and, if they are needed, `seen` [n] and `removed` [m]: sorted ids that were removed since
the base that the file adds to.
"""

import mmap
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, final

import numpy as np

from flambeau.checkpoint.durable import sync
from flambeau.checkpoint.manifest import FileEntry
from flambeau.checkpoint.os_errors import named
from flambeau.config.tables import TableSpec
from flambeau.errors import CheckpointError
from flambeau.tables.index.ids import Ids
from flambeau.tables.index.index import Rows
from flambeau.tables.precision import widen
from flambeau.tables.saved import table_slots
from flambeau.tables.saved.checked_blocks import WHOLE, CheckedBlocks
from flambeau.tables.saved.checksums import CHECKSUMS, block_sums
from flambeau.tables.saved.snapshot import Chunk
from flambeau.tables.saved.table_layout import lay_out, read_layout, seal
from flambeau.tables.saved.table_tensors import ROW_BY_ROW, dtype_of, require_table, tensors_of

Array = np.ndarray[Any, Any]

#: Positions that `TableFile.locate` returns for ids that the file does not mention or lists as
#: removed.
ABSENT, GONE = -1, -2

_PIECE = 1 << 24


def _remedy(path: Path) -> str:
    """Return which checkpoint to use instead of the one that contains this file."""
    own = path.absolute().parent
    others = [each.parent.name for each in own.parent.glob("step-*/manifest.json")]
    steps = sorted({int(name[5:]) for name in others if name != own.name and name[5:].isdigit()})
    return (
        f"use another checkpoint: RUN@step-{steps[-1]}"
        if steps
        else "the run has no other checkpoint"
    )


def table_file_name(table: str, shard: int) -> str:
    """Return the name of the file of a shard's rows."""
    return f"table-{table}-{shard}.safetensors"


@final
class TableFileWriter:
    """Writer that puts each row in its place at once and buffers none.

    Before `finish`, exactly `rows` rows with distinct ids must have been appended. Its methods may
    be called by different threads, one at a time. The file can be read only after `finish`.
    """

    def __init__(
        self,
        path: Path,
        spec: TableSpec,
        rows: int,
        state_width: int,
        *,
        seen: bool = False,
        removed: Ids | None = None,
    ) -> None:
        if rows > table_slots.MOST_ROWS:
            raise CheckpointError(f"{path} cannot hold {rows} rows; use more servers")
        self._path, self._rows, self._written = path, rows, 0
        self._removed = None if removed is None else np.sort(removed)
        count = None if removed is None else removed.size
        tensors = tensors_of(spec, rows, state_width, seen=seen, removed=count)
        self._header, self._regions = lay_out(tensors)
        with named(path):
            # An existing file is not overwritten, since another process may have it mapped.
            path.unlink(missing_ok=True)
            self._file = path.open("x+b", buffering=0)

    def append(self, chunk: Chunk) -> None:
        """Write the next rows."""
        with named(self._path):
            for name in self._regions.keys() & ROW_BY_ROW:
                self._put(name, getattr(chunk, name), self._written)
        self._written += chunk.ids.size

    def finish(self) -> FileEntry:
        """Write the index and wait until everything is on the disk; return size and checksum."""
        if self._written != self._rows:
            raise CheckpointError(f"{self._path} got {self._written} rows instead of {self._rows}")
        with named(self._path), self._file as file:
            if self._removed is not None:
                self._put("removed", self._removed, 0)
            self._write(self._header, 0)
            memory = self._write_slots()
            entry = self._write_sums(memory)
            sync(file)
            return entry

    def abandon(self) -> None:
        """Remove the file, finished or not."""
        self._file.close()
        self._path.unlink(missing_ok=True)

    def _put(self, name: str, values: Array, row: int) -> None:
        region = self._regions[name]
        assert values.dtype == region.numpy, f"{name} are {values.dtype}, not {region.numpy}"
        assert values.shape[1:] == region.shape[1:], f"{name} are {values.shape}"
        assert row + len(values) <= region.shape[0], f"more {name} than announced"
        self._write(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data, region.row(row))

    def _write_slots(self) -> mmap.mmap:
        region = self._regions["slots"]
        # Written before it is mapped: a full disk is then an error and not a fatal signal.
        for start in range(region.start, region.stop, _PIECE):
            self._write(b"\xff" * min(_PIECE, region.stop - start), start)
        memory = mmap.mmap(self._file.fileno(), 0)
        table_slots.build(self._regions["ids"].view(memory), region.view(memory))
        return memory

    def _write_sums(self, memory: mmap.mmap) -> FileEntry:
        regions = {name: r for name, r in self._regions.items() if name != CHECKSUMS}
        with memoryview(memory) as whole:
            sums = {name: block_sums(whole[r.start : r.stop]) for name, r in regions.items()}
        content, entry = seal(self._header, self._regions, sums)
        self._put(CHECKSUMS, content, 0)
        return entry

    def _write(self, data: bytes | memoryview, offset: int) -> None:
        rest = memoryview(data)
        while rest:
            done = os.pwrite(self._file.fileno(), rest, offset)
            rest, offset = rest[done:], offset + done


@final
class TableFile:
    """Finished file, mapped into memory: only the parts that are used are read.

    It stays readable while it is open, even if it is removed. Data is compared with its checksums
    before it is used: files of up to `whole` bytes completely when opened, larger files block by
    block. `has_checksums` is false for a file that was written without checksums.
    """

    def __init__(self, path: Path, whole: int = WHOLE) -> None:
        self.path = path
        with _opened(path) as file:
            regions = read_layout(file, path)
            require_table(regions, path)
            self._memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.nbytes = len(self._memory)
        self.rows, self.dim = regions["values"].shape
        self.dtype = dtype_of(regions["values"])
        self.state_width = regions["state"].shape[1]
        self._parts = {name: region.view(self._memory) for name, region in regions.items()}
        self._blocks = CheckedBlocks(path, self._memory, regions, lambda: _remedy(path))
        self.has_checksums = self._blocks.known
        if self.nbytes <= whole:
            self._blocks.require_all()

    @property
    def removed(self) -> Ids:
        """Sorted ids that have a row in the base and none in the table, copied."""
        has = "removed" in self._parts
        return self._copy("removed", slice(None)) if has else np.empty(0, np.int64)

    def ids(self, positions: Rows | slice) -> Ids:
        """Return the ids of rows, copied."""
        return self._copy("ids", positions)

    def find(self, ids: Ids) -> Rows:
        """Return the position of each id, -1 if it has none."""
        out, blocks = np.empty(ids.size, np.int64), self._blocks
        own, slots = self._parts["ids"], self._parts["slots"]
        firsts = (blocks.first["ids"], blocks.first["slots"])
        found = blocks.settle(
            lambda fresh: table_slots.find(ids, own, slots, out, firsts, blocks.marks, fresh)
        )
        if found < 0:
            raise CheckpointError(
                f"{self.path} is corrupt: its index slots point outside the file; "
                f"{_remedy(self.path)}"
            )
        return out

    def locate(self, ids: Ids) -> Rows:
        """Return the position of each id, `GONE` if it was removed, else `ABSENT`."""
        positions = self.find(ids)
        if "removed" in self._parts:
            is_gone = self._blocks.search("removed", ids) >= 0
            positions[(positions == ABSENT) & is_gone] = GONE
        return positions

    def take(self, positions: Rows | slice) -> Array:
        """Return values of rows [n, dim], copied, in the type they are computed in."""
        return widen(self._copy("values", positions), self.dtype)

    def chunks(self, max_rows: int) -> Iterator[Chunk]:
        """Yield all rows as they are stored, copied, at most `max_rows` at a time."""
        for part in self.pieces(max_rows):
            seen = self._copy("seen", part) if "seen" in self._parts else None
            ids, values, state = (self._copy(name, part) for name in ("ids", "values", "state"))
            yield Chunk(ids, values, state, seen)

    def pieces(self, max_rows: int) -> Iterator[slice]:
        """Yield the positions of all rows, `max_rows` at a time, and release the pages read."""
        for start in range(0, self.rows, max_rows):
            yield slice(start, min(start + max_rows, self.rows))
            self._memory.madvise(mmap.MADV_DONTNEED)

    def mentions(self, max_ids: int) -> Iterator[Ids]:
        """Yield the ids of all rows, then the removed ids, at most `max_ids` at a time."""
        for part in self.pieces(max_ids):
            yield self.ids(part)
        removed = self.removed
        for start in range(0, removed.size, max_ids):
            yield removed[start : start + max_ids]

    def verify(self, expected: FileEntry, breathe: Callable[[], None]) -> None:
        """Read the whole file; raise `CheckpointError` unless it matches its manifest entry.

        `breathe` is called repeatedly, since reading may take long.
        """
        with _opened(self.path) as file:
            found = _entry(file, breathe)
        if found != expected:
            raise CheckpointError(f"{self.path} is corrupt: its size or checksum is wrong")
        self._blocks.mark_all()

    def _copy(self, name: str, positions: Rows | slice) -> Array:
        self._blocks.require(name, positions)
        part = self._parts[name][positions]
        return part.copy() if isinstance(positions, slice) else part


def _entry(file: BinaryIO, breathe: Callable[[], None] = lambda: None) -> FileEntry:
    size = checksum = 0
    while piece := file.read(_PIECE):
        breathe()
        size += len(piece)
        checksum = zlib.crc32(piece, checksum)
    return FileEntry(size=size, crc32=checksum)


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        with path.open("rb") as file:
            yield file
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing") from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
