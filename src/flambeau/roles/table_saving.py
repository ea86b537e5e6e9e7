"""The tables' part of a checkpoint."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import final

from flambeau.checkpoint.manifest import FileEntry, TableEntry
from flambeau.checkpoint.store import TrainingState
from flambeau.config.tables import TableSpec
from flambeau.roles.worker_context import WorkerContext
from flambeau.strategies.all_reduce import AllReduceStrategy
from flambeau.strategies.base import Strategy

Saved = tuple[dict[str, FileEntry], dict[str, TableEntry]]
#: Waits until tables are on the disk: their files, and how they make up the tables.
Finish = Callable[[], Saved]


class TableCheckpoints(ABC):
    """The tables' part of a checkpoint. Only the first worker's saves."""

    #: Whether other workers can change what is saved, and whether there is nothing to save.
    shared = False
    empty = False

    @abstractmethod
    def begin(self, directory: Path) -> Finish:
        """Save this moment into a directory; what is left to do may be done by another thread."""

    def restore(self, state: TrainingState) -> None:  # noqa: B027 - servers do it themselves
        """Go on from a checkpoint."""

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """End connections."""


@final
class NoTables(TableCheckpoints):
    """A model without tables, and without servers."""

    empty = True

    def begin(self, directory: Path) -> Finish:
        """Nothing to save."""
        return lambda: ({}, {})


def table_saving(
    context: WorkerContext, strategy: Strategy, specs: Sequence[TableSpec], last: Path | None
) -> TableCheckpoints:
    """Who saves the tables of a job; `last` is the checkpoint that it goes on from."""
    if isinstance(strategy, AllReduceStrategy) and strategy.tables is None:
        return NoTables()
    # Loads kernels, which a job without tables can do without.
    from flambeau.roles.table_checkpoints import make_saving

    return make_saving(context, strategy, specs, last)
