"""Tables in checkpoints: those of this process, and those of the servers."""

from collections.abc import Sequence
from pathlib import Path
from typing import final

from flambeau.checkpoint.manifest import FileEntry, Manifest, TableEntry
from flambeau.checkpoint.tree_file import write_tree
from flambeau.config import JobSettings
from flambeau.config.table_optimizer import table_optimizer
from flambeau.config.tables import TableSpec, optimizer_of
from flambeau.embeddings.in_process import InProcessTables
from flambeau.parameter_server.channel import Access, Channel
from flambeau.parameter_server.protocol import AwaitSnapshot, TakeSnapshot
from flambeau.parameter_server.restoring import read_states
from flambeau.parameter_server.snapshot import state_file_name
from flambeau.strategies.base import Finish, Saved, SavingContext, TableCheckpoints
from flambeau.tables.saved.saving import SavedTable, TablesSnapshot, restore_tables

PIECE_ROWS = 262_144


@final
class Layers:
    """Layers of files that make up tables: those of a full checkpoint, and of changes since."""

    def __init__(self, settings: JobSettings) -> None:
        self._default = table_optimizer(settings)
        self._full: dict[str, list[str]] = {}
        #: Number of checkpoints since the last full one, including it.
        self.count = 0

    def entries(
        self, directory: Path, specs: Sequence[TableSpec], files: dict[str, list[SavedTable]]
    ) -> dict[str, TableEntry]:
        """Return the tables' manifest entries; `files` are those of all shards, by table."""
        full = all(part.full for parts in files.values() for part in parts)
        self.count = 1 if full else self.count + 1
        entries = {}
        for spec in specs:
            own = [part.file for part in files[spec.name]]
            used = optimizer_of(spec, self._default) if spec.trainable else None
            shown = spec.model_copy(update={"optimizer": used})
            layers = [own] if full else [own, self._full[spec.name]]
            entries[spec.name] = TableEntry(spec=shown.model_dump(mode="json"), layers=layers)
            if full:
                # Relative to a later checkpoint in a neighbouring directory.
                self._full[spec.name] = [f"../{directory.name}/{file}" for file in own]
        return entries

    def build_on(self, directory: Path) -> bool:
        """Return whether the last full checkpoint is in this directory."""
        paths = [path for layer in self._full.values() for path in layer]
        return any(Path(path).parent.name == directory.name for path in paths)


@final
class LocalTableCheckpoints(TableCheckpoints):
    """Saving of this process's tables: rows are written at once, the rest in the background."""

    def __init__(self, context: SavingContext, tables: InProcessTables) -> None:
        self._context, self._tables = context, tables

    def begin(self, directory: Path) -> Finish:
        """Write all rows; the returned `finish` computes checksums and waits for the disk."""
        tables = list(self._tables.tables.values())
        snapshot = TablesSnapshot(tables, directory, 0, incremental=False)
        while not snapshot.written:
            snapshot.advance(PIECE_ROWS)
        layers = Layers(self._context.settings)
        specs = [table.spec for table in tables]

        def finish() -> Saved:
            files, saved = snapshot.finish()
            name = state_file_name(0)
            files[name] = write_tree(directory / name, {"dense": None, "tables": snapshot.dumps})
            return files, layers.entries(directory, specs, {s.name: [s] for s in saved})

        return finish

    def load(self, checkpoint: Path) -> None:
        """Restore rows and counters; tables that the checkpoint lacks stay as they are."""
        if not Manifest.read(checkpoint).tables:
            return
        dumps = [dump["tables"] for dump in read_states(checkpoint)]
        backend = self._tables
        backend.empty(backend.tables.keys() & Manifest.read(checkpoint).tables.keys())
        tables = list(backend.tables.values())
        restore_tables(tables, checkpoint, 0, 1, dumps, lambda: None)


@final
class ServerTableCheckpoints(TableCheckpoints):
    """Saving of tables and all other state of the servers, by all shards at once."""

    shared = True

    def __init__(self, context: SavingContext, access: Access) -> None:
        self._context, self._specs, self._access = context, context.specs, access
        self._settings = context.settings.checkpoints
        self._layers = Layers(context.settings)
        self._channels: list[Channel] = []
        self._servers: list[str] = []
        self._count = 0

    def begin(self, directory: Path) -> Finish:
        """Request a snapshot of all shards, which they write while training continues."""
        incremental = self._can_be_incremental(directory)
        self._connect()
        self._count += 1
        spec = self._context.coordinator.spec
        name = f"{directory.name}-{spec.generation}-{spec.attempt}-{self._count}"
        number = 2 * self._count
        place = str(directory.relative_to(self._context.run.path))
        take = TakeSnapshot(number, name, place, self._settings.incremental, incremental)
        for channel in self._channels:
            channel.send(take)
        for channel in self._channels:
            channel.answer(number)
        return lambda: self._finish(directory, name, number + 1)

    def close(self) -> None:
        """Close the connections."""
        for channel in self._channels:
            channel.close()

    def _can_be_incremental(self, directory: Path) -> bool:
        """Return whether changes suffice: a replaced shard has not recorded all of them."""
        return (
            self._settings.incremental
            and self._servers == self._context.coordinator.servers
            and 0 < self._layers.count < self._settings.full_every
            and not self._layers.build_on(directory)
        )

    def _connect(self) -> None:
        """Open separate connections: the saving thread uses them while the worker trains."""
        if not self._channels:
            shards = len(self._context.coordinator.servers)
            self._channels = [Channel(s, self._access) for s in range(shards)]
        self._servers = list(self._context.coordinator.servers)

    def _finish(self, directory: Path, name: str, number: int) -> Saved:
        files: dict[str, FileEntry] = {}
        tables: dict[str, list[SavedTable]] = {spec.name: [] for spec in self._specs}
        for channel in self._channels:
            channel.send(AwaitSnapshot(number, name))
        for channel in self._channels:
            done, _ = channel.answer(number)
            for file, (size, crc32) in done.files.items():
                files[file] = FileEntry(size=size, crc32=crc32)
            for saved in done.tables:
                tables[saved.name].append(SavedTable(saved.name, saved.file, saved.full))
        return files, self._layers.entries(directory, self._specs, tables)
