"""Tables in the worker itself: looked up in training, changed by the strategy's update."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import final

from torch import nn

from flambeau.embeddings.attach import attach, tables_of
from flambeau.embeddings.backend import TableGradient
from flambeau.embeddings.external import initial_rows
from flambeau.embeddings.in_process import InProcessTables
from flambeau.embeddings.lookups import Lookups
from flambeau.strategies.base import SavingContext, TableCheckpoints
from flambeau.strategies.table_checkpoints import LocalTableCheckpoints


@final
class LocalTables:
    """Tables in this process, for a job with one worker."""

    def __init__(self, tables: InProcessTables) -> None:
        self.backend = tables
        self.lookups = Lookups(tables)

    def attach(self, model: nn.Module) -> None:
        """Attach a table to every `SparseEmbedding` of the model."""
        self.backend.declare(tables_of(model))
        for spec, ids, values in initial_rows(model):
            self.backend.tables[spec.name].load(ids, values)
        attach(model, self.lookups)

    def gradients(self) -> list[TableGradient]:
        """Return the gradients of the last backward passes."""
        return self.lookups.gradients()

    def counters(self) -> dict[str, dict[str, int]]:
        """Return the counters of each table (see `TableCounters`), by its name."""
        return {name: asdict(table.counters) for name, table in self.backend.tables.items()}

    def apply(self, gradients: Sequence[TableGradient], factor: float) -> None:
        """Update the tables; learning rates are multiplied by `factor`."""
        with self.lookups.watch:
            self.backend.push(gradients, factor)

    def checkpoints(self, context: SavingContext) -> TableCheckpoints:
        """Return the object that saves and loads the tables."""
        return LocalTableCheckpoints(context, self.backend)

    @property
    def seconds(self) -> float:
        """Total time of lookups and updates."""
        return self.lookups.watch.seconds
