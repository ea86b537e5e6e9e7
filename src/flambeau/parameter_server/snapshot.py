"""A consistent snapshot of a shard, written while it keeps changing."""

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, final

from flambeau.checkpoint.tree_file import write_tree
from flambeau.parameter_server.protocol import SnapshotFile
from flambeau.parameter_server.shard import ServerShard
from flambeau.tables.saved.saving import TablesSnapshot

Files = dict[str, tuple[int, int]]


def state_file_name(shard: int) -> str:
    """Return the name of the file with a shard's state other than table rows."""
    return f"server-{shard}.safetensors"


@final
class ShardSnapshot:
    """Snapshot that copies dense weights at once, and rows of tables before they change.

    `advance` is called between requests until all rows are `written`; a thread does the rest
    (checksums, waiting for the disk), and `result` returns at once when it is `done`.
    """

    def __init__(
        self,
        shard: ServerShard,
        name: str,
        directory: Path,
        *,
        track: bool = False,
        incremental: bool = False,
    ) -> None:
        self.name = name
        self._directory = directory
        self._index = shard.settings.index
        incremental = incremental and all(table.track_touched for table in shard.tables)
        for table in shard.tables:
            table.track_touched = track
        self._tables = TablesSnapshot(shard.tables, directory, self._index, incremental=incremental)
        self._state = shard_state(shard, self._tables.dumps)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="snapshot")
        self._finishing: Future[tuple[Files, list[SnapshotFile]]] | None = None
        self._error: Exception | None = None
        self._finish_if_written()

    @property
    def written(self) -> bool:
        """Return whether no more calls of `advance` are needed."""
        return self._finishing is not None or self._error is not None

    def advance(self, rows: int) -> None:
        """Write at most `rows` rows."""
        try:
            self._tables.advance(rows)
        except Exception as error:  # noqa: BLE001 - raised by `result`
            self._tables.abandon()
            self._error = error
        else:
            self._finish_if_written()

    def done(self) -> bool:
        """Return whether `result` will return without waiting."""
        return self._error is not None or (self._finishing is not None and self._finishing.done())

    def result(self) -> tuple[Files, list[SnapshotFile]]:
        """Return the files with sizes and checksums, and the table of each; raise on failure."""
        if self._error is not None:
            raise self._error
        assert self._finishing is not None
        return self._finishing.result()

    def abandon(self) -> None:
        """Abandon the snapshot if it is not finished."""
        if self._finishing is None:
            self._tables.abandon()
        self._thread.shutdown()

    def _finish_if_written(self) -> None:
        if self._tables.written:
            self._finishing = self._thread.submit(self._finish)

    def _finish(self) -> tuple[Files, list[SnapshotFile]]:
        entries, tables = self._tables.finish()
        name = state_file_name(self._index)
        entries[name] = write_tree(self._directory / name, self._state)
        files = {name: (entry.size, entry.crc32) for name, entry in entries.items()}
        return files, [SnapshotFile(t.name, t.file, t.full) for t in tables]


def shard_state(shard: ServerShard, tables: dict[str, Any]) -> dict[str, Any]:
    """Return a shard's state other than table rows, for a checkpoint."""
    return {
        "shard": shard.settings.index,
        "shards": shard.settings.count,
        "round": shard.staging.round,
        "version": shard.version,
        "watermarks": shard.watermarks.dump(),
        "dense": shard.dense.dump() if shard.dense is not None else None,
        "tables": tables,
    }
