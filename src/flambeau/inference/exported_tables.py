"""Tables of an export: files of sorted ids and their values, searched without loading them.

A file is a safetensors file of `ids` [n] (int64, ascending), `values` [n, dim], for int8 `scales`
[n] (a row is its values times its scale), in a delta `removed` [m] (ids whose rows were removed),
and `crc32`: checksums of the header and of each block of 64 KiB of each other tensor.
"""

import mmap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, final

import numpy as np

from flambeau.checkpoint.durable import atomic_file
from flambeau.checkpoint.manifest import FileEntry
from flambeau.config.tables import TableSpec
from flambeau.embeddings.backend import LookupBackend
from flambeau.errors import CheckpointError, ModelError
from flambeau.tables.index.ids import Ids
from flambeau.tables.precision import narrow, widen
from flambeau.tables.saved.checked_blocks import WHOLE, CheckedBlocks
from flambeau.tables.saved.checksums import BLOCK, CHECKSUMS, Sums, block_sums
from flambeau.tables.saved.mapped import MappedTable
from flambeau.tables.saved.table_layout import Region, lay_out, read_layout, seal

Array = np.ndarray[Any, Any]
Stored = Literal["fp32", "fp64", "bf16", "int8"]

_TENSOR = {"fp32": "F32", "fp64": "F64", "bf16": "BF16", "int8": "I8"}
_STORED: dict[str, Stored] = {"F32": "fp32", "F64": "fp64", "BF16": "bf16", "I8": "int8"}
#: Number of rows that are processed at a time.
_CHUNK = BLOCK
_REMEDY = "export the run again, or copy the export again from its source"
_TENSORS = {"ids", "values", "scales", "removed", CHECKSUMS}


class RowsById(Protocol):
    """Source of rows for ids: a checkpoint's table, or an export's."""

    def pull(self, ids: Ids) -> Array: ...
    def has(self, ids: Ids) -> Array: ...


def sorted_ids(table: MappedTable) -> Ids:
    """Return the ids of all rows of a table, ascending."""
    found = [ids.copy() for ids, _ in table.chunks(_CHUNK)]
    return np.sort(np.concatenate(found)) if found else np.empty(0, np.int64)


def changed_ids(ids: Ids, new: RowsById, old: RowsById, stored: Stored) -> Ids:
    """Return those of `ids` without a row in `old`, or whose stored row would be different."""
    return np.concatenate(
        [
            part[~old.has(part) | (as_stored(new.pull(part), stored) != old.pull(part)).any(axis=1)]
            for part in _pieces(ids)
        ]
        or [ids]
    )


def write_table(
    path: Path, ids: Ids, rows: RowsById, stored: Stored, removed: Ids | None
) -> FileEntry:
    """Write the rows of `ids` (ascending) in pieces, so that few are in memory at a time."""
    dim = rows.pull(ids[:1]).shape[1] if ids.size else rows.pull(np.zeros(1, np.int64)).shape[1]
    tensors: dict[str, tuple[str, tuple[int, ...]]] = {
        "ids": ("I64", (ids.size,)),
        "values": (_TENSOR[stored], (ids.size, dim)),
    }
    if stored == "int8":
        tensors["scales"] = ("F32", (ids.size,))
    if removed is not None:
        tensors["removed"] = ("I64", (removed.size,))
    header, regions = lay_out(tensors)
    sums: dict[str, list[Sums]] = {name: [np.empty(0, np.int64)] for name in tensors}
    with atomic_file(path) as file:
        file.write(header)

        def put(name: str, row: int, part: Array) -> None:
            data = np.ascontiguousarray(part).reshape(-1).view(np.uint8).data
            file.seek(regions[name].row(row))
            file.write(data)
            # A piece has as many rows as a block has bytes, so that blocks end where pieces do.
            sums[name].append(block_sums(data))

        put("ids", 0, ids)
        if removed is not None:
            put("removed", 0, removed)
        for number, part in enumerate(_pieces(ids)):
            values, scales = _encoded(rows.pull(part), stored)
            put("values", number * _CHUNK, values)
            if scales is not None:
                put("scales", number * _CHUNK, scales)
        whole = {name: np.concatenate(parts) for name, parts in sums.items()}
        content, entry = seal(header, regions, whole)
        file.seek(regions[CHECKSUMS].start)
        file.write(content.data)
    return entry


def as_stored(values: Array, stored: Stored) -> Array:
    """Return values [n, dim] as they are read after being stored."""
    return _decoded(*_encoded(values, stored), stored)


def _encoded(values: Array, stored: Stored) -> tuple[Array, Array | None]:
    if stored == "bf16":
        return narrow(values.astype(np.float32), "bf16"), None
    if stored != "int8":
        return values.astype(np.float64 if stored == "fp64" else np.float32), None
    scales = (np.abs(values).max(axis=1) / 127).astype(np.float32)
    scales[scales == 0] = 1
    return np.rint(values / scales[:, None]).astype(np.int8), scales


def _decoded(values: Array, scales: Array | None, stored: Stored) -> Array:
    if scales is not None:
        return values.astype(np.float32) * scales[:, None]
    return widen(values, "bf16") if stored == "bf16" else values


def _pieces(ids: Ids) -> Iterator[Ids]:
    return (ids[start : start + _CHUNK] for start in range(0, ids.size, _CHUNK))


@final
class ExportedFile:
    """One file, mapped into memory; it stays readable while it is open, even if it is removed.

    Data is compared with its checksums before use: in files of up to `whole` bytes all of it now,
    in larger files each block when it is first used.
    """

    def __init__(self, path: Path, whole: int = WHOLE) -> None:
        try:
            with path.open("rb") as file:
                regions = read_layout(file, path)
                memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read: {error}") from error
        _require_tensors(path, regions)
        self._parts = {name: region.view(memory) for name, region in regions.items()}
        self.stored = _STORED[regions["values"].dtype]
        self._blocks = CheckedBlocks(path, memory, regions, lambda: _REMEDY)
        if len(memory) <= whole:
            self._blocks.require_all()

    def ids(self) -> Ids:
        """Return the ids of all rows, ascending, without copying."""
        self._blocks.require("ids", slice(None))
        return self._parts["ids"]

    def locate(self, ids: Ids) -> tuple[Array, Array]:
        """Return the position of each id (-1: none), and whether the file lists it as removed."""
        places = self._blocks.search("ids", ids)
        if "removed" not in self._parts:
            return places, np.zeros(ids.size, np.bool_)
        return places, (self._blocks.search("removed", ids) >= 0) & (places < 0)

    def take(self, places: Array) -> Array:
        """Return copies of the rows at these positions [n, dim]."""
        scales = self._rows("scales", places) if "scales" in self._parts else None
        return _decoded(self._rows("values", places), scales, self.stored)

    def _rows(self, name: str, places: Array) -> Array:
        self._blocks.require(name, places)
        return self._parts[name][places]


def _require_tensors(path: Path, regions: Mapping[str, Region]) -> None:
    fits = {"ids", "values"} <= regions.keys() <= _TENSORS
    if not fits or regions["values"].dtype not in _STORED:
        raise CheckpointError(f"{path} is not a table of an export, or its header is damaged")
    rows = regions["ids"].shape
    by_row = [regions[name].shape[:1] for name in ("values", "scales") if name in regions]
    ascending = [regions[name] for name in ("ids", "removed") if name in regions]
    if any(shape != rows for shape in by_row) or any(
        (region.dtype, len(region.shape)) != ("I64", 1) for region in ascending
    ):
        raise CheckpointError(f"{path} is not a table of an export: its tensors do not match")


@final
class ExportedTable:
    """A table of an export, followed by those that it is a delta to and a checkpoint's table.

    An id without a row reads as `default` [dim]. Reading is thread-safe.
    """

    def __init__(
        self, default: Array, files: Sequence[ExportedFile], base: MappedTable | None = None
    ) -> None:
        self._default, self._files, self._base = default, files, base

    def pull(self, ids: Ids) -> Array:
        """Return the rows of `ids` [n, dim]."""
        out = np.tile(self._default, (ids.size, 1))
        rest = np.arange(ids.size)
        for file in self._files:
            places, gone = file.locate(ids[rest])
            there = places >= 0
            if there.any():
                out[rest[there]] = file.take(places[there])
            rest = rest[~there & ~gone]
        if self._base is not None and rest.size:
            out[rest] = self._base.pull(ids[rest])
        return out

    def has(self, ids: Ids) -> Array:
        """Return whether each id has a row."""
        out = np.zeros(ids.size, np.bool_)
        rest = np.arange(ids.size)
        for file in self._files:
            places, gone = file.locate(ids[rest])
            out[rest[places >= 0]] = True
            rest = rest[(places < 0) & ~gone]
        if self._base is not None and rest.size:
            out[rest] = self._base.has(ids[rest])
        return out

    def ids(self) -> Ids:
        """Return the ids of all rows, ascending."""
        known = [file.ids() for file in self._files]
        known += [sorted_ids(self._base)] if self._base is not None else []
        every = np.unique(np.concatenate(known)) if known else np.empty(0, np.int64)
        return every[self.has(every)]


@final
class ExportedTables(LookupBackend):
    """Lookup backend for the tables of exports, by name."""

    def __init__(self, tables: dict[str, ExportedTable]) -> None:
        self._tables = tables

    def declare(self, specs: Sequence[TableSpec]) -> None:
        """Check that the tables exist; raise `ModelError` if one does not."""
        missing = [spec.name for spec in specs if spec.name not in self._tables]
        if missing:
            raise ModelError(f"the export has no table '{missing[0]}'")

    def pull(self, wanted: Sequence[tuple[TableSpec, Ids]], *, training: bool) -> list[Array]:
        """Return exported rows; an id without one gets the default row."""
        return [self._tables[spec.name].pull(ids) for spec, ids in wanted]
