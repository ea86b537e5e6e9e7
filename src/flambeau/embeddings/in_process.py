"""Tables in the training process itself."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np

from flambeau.config.optimizer import OptimizerSpec
from flambeau.config.tables import TableSpec
from flambeau.embeddings.backend import Array, LookupBackend, TableGradient, by_name
from flambeau.errors import ModelError
from flambeau.tables.index.ids import Ids
from flambeau.tables.saved.importing import import_vectors
from flambeau.tables.table import Table


@final
class InProcessTables(LookupBackend):
    """Tables in this process, by name in `tables`; not safe for use by several threads at once.

    `optimizer` is for tables whose spec has none; tables with `storage="mmap"` keep their rows in
    `directory`.
    """

    def __init__(
        self,
        seed: int = 0,
        optimizer: OptimizerSpec | None = None,
        directory: Path | None = None,
    ) -> None:
        self.tables: dict[str, Table] = {}
        self._seed, self._optimizer, self._directory = seed, optimizer, directory

    def declare(self, specs: Sequence[TableSpec]) -> None:
        known = {name: table.spec for name, table in self.tables.items()}
        for name, spec in by_name(specs, known).items():
            if name not in self.tables:
                self.tables[name] = self._new(spec)
                if spec.init is not None:
                    import_vectors(self.tables[name], spec.init, _all)

    def empty(self, names: Iterable[str]) -> None:
        """Remove all rows of these tables, before they are restored."""
        for name in names:
            self.tables[name] = self._new(self.tables[name].spec)

    def pull(self, wanted: Sequence[tuple[TableSpec, Ids]], *, training: bool) -> list[Array]:
        return [self._table(spec).pull(ids, training=training) for spec, ids in wanted]

    def push(self, gradients: Sequence[TableGradient], factor: float) -> None:
        for gradient in gradients:
            table = self._table(gradient.spec)
            table.push(gradient.ids, gradient.grads, table.optimizer.lr * factor)

    def load(self, spec: TableSpec, ids: Ids, values: Array) -> None:
        """Set the rows of distinct ids to `values` [n, dim], with initial optimizer state."""
        self._table(spec).load(ids, values)

    def _new(self, spec: TableSpec) -> Table:
        return Table(spec, self._seed, self._optimizer, self._directory)

    def _table(self, spec: TableSpec) -> Table:
        if spec.name not in self.tables:
            raise ModelError(f"table '{spec.name}' is not known here; declare it before it is used")
        return self.tables[spec.name]


def _all(ids: Ids) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.ones(ids.size, np.bool_)
