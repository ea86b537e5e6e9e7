"""Saving a process's tables to a checkpoint while they change, and restoring them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import torch

from flambeau.checkpoint.manifest import FileEntry, Manifest
from flambeau.config.optimizer import OptimizerSpec
from flambeau.errors import ModelError
from flambeau.tables.index.hashing import shards_of
from flambeau.tables.optimizers import OPTIMIZERS
from flambeau.tables.saved.mapped import MappedTable, open_tables
from flambeau.tables.saved.snapshot import TableSnapshot
from flambeau.tables.saved.table_files import TableFile, TableFileWriter, table_file_name
from flambeau.tables.table import Table

LOAD_ROWS = 131_072


@dataclass(frozen=True)
class SavedTable:
    """File of a table's rows: all if `full`, else those changed since the last full file."""

    name: str
    file: str
    full: bool


@final
class TablesSnapshot:
    """Consistent snapshot of all tables of one shard, written piece by piece into `directory`.

    `written` becomes true when all pieces are written; `finish` may then run in another thread.
    """

    def __init__(
        self, tables: Sequence[Table], directory: Path, shard: int, *, incremental: bool
    ) -> None:
        self._open: list[tuple[TableSnapshot, TableFileWriter]] = []
        self._writers: list[TableFileWriter] = []
        self._tables: list[SavedTable] = []
        self._dumps = {table.spec.name: _tensors(table.state_dump()) for table in tables}
        try:
            for table in tables:
                self._begin(table, directory, shard, incremental)
        except BaseException:
            self.abandon()
            raise

    @property
    def written(self) -> bool:
        """Return whether all rows are in their files."""
        return not self._open

    @property
    def dumps(self) -> dict[str, dict[str, Any]]:
        """State of each table apart from its rows, by table name."""
        return self._dumps

    def advance(self, rows: int) -> None:
        """Write at most `rows` rows."""
        if not self._open:
            return
        snapshot, writer = self._open[0]
        chunk = snapshot.take(rows)
        if chunk is None:
            self._open.pop(0)
        else:
            writer.append(chunk)

    def finish(self) -> tuple[dict[str, FileEntry], list[SavedTable]]:
        """Wait until everything is on the disk; return the files, and the table of each."""
        assert self.written
        entries = [writer.finish() for writer in self._writers]
        files = {table.file: entry for table, entry in zip(self._tables, entries, strict=True)}
        return files, self._tables

    def abandon(self) -> None:
        """Release the tables and remove the files."""
        for snapshot, _ in self._open:
            snapshot.abandon()
        self._open.clear()
        for writer in self._writers:
            writer.abandon()

    def _begin(self, table: Table, directory: Path, shard: int, incremental: bool) -> None:
        full = not (incremental and table.track_touched)
        name = table_file_name(table.spec.name, shard)
        snapshot = table.begin_snapshot(touched_only=not full)
        try:
            writer = TableFileWriter(
                directory / name,
                table.spec,
                snapshot.rows,
                table.optimizer.state_width(table.spec.dim),
                seen=table.spec.eviction is not None,
                removed=None if full else snapshot.removed,
            )
        except BaseException:
            snapshot.abandon()
            raise
        self._open.append((snapshot, writer))
        self._writers.append(writer)
        self._tables.append(SavedTable(table.spec.name, name, full))


def restore_tables(
    tables: Sequence[Table],
    checkpoint: Path,
    shard: int,
    shards: int,
    dumps: Sequence[dict[str, dict[str, Any]]],
    breathe: Callable[[], None],
) -> None:
    """Restore rows and counters of a checkpoint, whatever its number of shards.

    Loads only the ids of this shard. `dumps` are the dumps of all shards of the checkpoint.
    `breathe` is called repeatedly, since reading may take long.
    """
    # Files that this shard reads are verified below; the others are not read at all.
    saved = open_tables(checkpoint, whole=0)
    _require_fit(tables, Manifest.read(checkpoint))
    for table in tables:
        mapped = saved.get(table.spec.name)
        if mapped is None:
            continue
        goes_on = _same_optimizer(table, mapped)
        for layer in reversed(mapped.layers):
            for file in _files_with(layer, shard, shards):
                file.verify(Manifest.read(file.path.parent).files[file.path.name], breathe)
                _load(table, file, shard, shards, goes_on, breathe)
        known = [_arrays(dump[table.spec.name]) for dump in dumps if table.spec.name in dump]
        table.state_load(known, shard)


def _files_with(layer: Sequence[TableFile], shard: int, shards: int) -> Iterator[TableFile]:
    """Return the files of a layer that may contain ids of this shard."""
    return iter([layer[shard]] if len(layer) == shards else layer)


def _same_optimizer(table: Table, mapped: MappedTable) -> bool:
    before = mapped.spec.optimizer or OptimizerSpec()
    return OPTIMIZERS.get(before.name) is type(table.optimizer)


def _load(
    table: Table,
    file: TableFile,
    shard: int,
    shards: int,
    goes_on: bool,
    breathe: Callable[[], None],
) -> None:
    removed = file.removed
    if removed.size:
        table.forget(removed[shards_of(removed, shards) == shard])
    for chunk in file.chunks(LOAD_ROWS):
        own = shards_of(chunk.ids, shards) == shard
        # If the optimizer has changed, its state starts from the beginning.
        state = chunk.state[own] if goes_on else None
        seen = chunk.seen[own] if chunk.seen is not None else None
        table.load(chunk.ids[own], chunk.values[own], state, seen)
        breathe()


def _require_fit(tables: Sequence[Table], manifest: Manifest) -> None:
    for table in tables:
        entry = manifest.tables.get(table.spec.name)
        if entry is None:
            continue
        for name in ("dim", "dtype"):
            ours, theirs = getattr(table.spec, name), entry.spec[name]
            if ours != theirs:
                raise ModelError(
                    f"table '{table.spec.name}' has {name} {ours}, but {theirs} in the checkpoint; "
                    "use that value, or start a new run"
                )


def _arrays(dump: dict[str, Any]) -> dict[str, Any]:
    """Return the dump with tensors converted to arrays."""
    return {
        name: value.numpy() if isinstance(value, torch.Tensor) else value
        for name, value in dump.items()
    }


def _tensors(dump: dict[str, Any]) -> dict[str, Any]:
    """Return the dump with arrays converted to tensors, which checkpoints can store."""
    return {
        name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value
        for name, value in dump.items()
    }
