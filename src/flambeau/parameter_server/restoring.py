"""Restoring a shard from a checkpoint that any number of shards has written."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, final

from flambeau.checkpoint.manifest import Manifest
from flambeau.checkpoint.tree_file import read_tree
from flambeau.errors import CheckpointError
from flambeau.parameter_server.shard import ServerShard
from flambeau.parameter_server.snapshot import state_file_name
from flambeau.parameter_server.staging import Staging
from flambeau.tables.saved.saving import restore_tables


@final
class Restoring:
    """Source of a shard's state: a checkpoint; with `afresh`, only its table rows and counters."""

    def __init__(self, checkpoint: Path, *, afresh: bool = False) -> None:
        self._checkpoint, self._afresh = checkpoint, afresh

    def restore(self, shard: ServerShard, breathe: Callable[[], None]) -> None:
        """Fill a declared shard. `breathe` is called repeatedly, since it may take long."""
        states = read_states(self._checkpoint)
        settings = shard.settings
        dumps = [state["tables"] for state in states]
        restore_tables(
            shard.tables, self._checkpoint, settings.index, settings.count, dumps, breathe
        )
        shard.filled = set(Manifest.read(self._checkpoint).tables)
        if self._afresh:
            return
        if shard.dense is not None:
            shard.dense.load([s["dense"] for s in states if s["dense"] is not None])
        shard.staging = Staging(max(s["round"] for s in states), settings.clip_value)
        shard.version = max(s["version"] for s in states)
        shard.watermarks.load([s["watermarks"] for s in states])
        shard.begun = True


def read_states(checkpoint: Path) -> list[dict[str, Any]]:
    """Return the states of all shards of a checkpoint, without table rows, by shard."""
    files = Manifest.read(checkpoint).files
    count = sum(name.startswith("server-") for name in files)
    if not count:
        raise CheckpointError(f"{checkpoint} holds no state of servers")
    return [
        read_tree(checkpoint / state_file_name(shard), files[state_file_name(shard)])
        for shard in range(count)
    ]
