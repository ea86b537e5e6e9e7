"""The tables of a checkpoint, opened in place and attached to a model."""

from collections.abc import Sequence
from pathlib import Path
from typing import final

from torch import nn

from flambeau.config.tables import TableSpec
from flambeau.embeddings.attach import attach, has_tables
from flambeau.embeddings.backend import Array, LookupBackend
from flambeau.embeddings.lookups import Lookups
from flambeau.errors import ModelError
from flambeau.tables.index.ids import Ids
from flambeau.tables.saved.mapped import open_tables


@final
class SavedTables(LookupBackend):
    """Read-only tables, memory-mapped from the files of a checkpoint."""

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        self._tables = open_tables(checkpoint)

    def declare(self, specs: Sequence[TableSpec]) -> None:
        """Check that the checkpoint has these tables, with these dimensions."""
        for spec in specs:
            if spec.name not in self._tables:
                known = ", ".join(self._tables) or "none"
                raise ModelError(
                    f"{self._checkpoint.name} has no table '{spec.name}'; it has {known}"
                )
            saved = self._tables[spec.name].spec
            if saved.dim != spec.dim:
                raise ModelError(
                    f"table '{spec.name}' has dim {spec.dim} in the model, but {saved.dim} in "
                    f"{self._checkpoint.name}"
                )

    def pull(self, wanted: Sequence[tuple[TableSpec, Ids]], *, training: bool) -> list[Array]:
        """Return saved rows; an id without one gets the default row."""
        return [self._tables[spec.name].pull(ids) for spec, ids in wanted]


def attach_saved_tables(model: nn.Module, checkpoint: Path) -> None:
    """Connect a model's modules to the tables of a checkpoint."""
    if has_tables(model):
        attach(model, Lookups(SavedTables(checkpoint)))
