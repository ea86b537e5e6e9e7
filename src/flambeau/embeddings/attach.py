"""Finding the tables of a model, and attaching them to its modules."""

from dataclasses import dataclass
from typing import Protocol

from torch import nn

from flambeau.config.tables import TableSpec
from flambeau.embeddings.backend import LookupBackend, by_name
from flambeau.embeddings.table_module import TableModule
from flambeau.errors import ModelError


class LooksUp(Protocol):
    """Object that looks up ids for modules (`Lookups`)."""

    @property
    def backend(self) -> LookupBackend: ...


def tables_of(model: nn.Module) -> list[TableSpec]:
    """Return the distinct tables of a model; raise `ModelError` if two share a name but differ."""
    return list(by_name(module.spec for module in _modules(model)).values())


def has_tables(model: nn.Module) -> bool:
    """Return whether any module of the model has a table."""
    return bool(_modules(model))


def begin_without_rows(model: nn.Module, *, others: bool) -> None:
    """Raise `ModelError` for a copy of a trained model without `others`: its rows are lost."""
    for module in _modules(model):
        if module.copied and not others:
            raise ModelError(
                f"the model's table '{module.spec.name}' holds rows that training cannot "
                "use: continue from their run with init_from=, or start with a new model"
            )
        module.copied = False


def attach(model: nn.Module, lookups: LooksUp) -> None:
    """Declare the model's tables, and let its modules look up through `lookups`."""
    lookups.backend.declare(tables_of(model))
    for module in _modules(model):
        module.lookups = lookups


@dataclass(frozen=True)
class EarlyColumn:
    """Column with ids of a table whose rows are to be fetched early.

    `fields` and `only` are those of the module.
    """

    spec: TableSpec
    name: str
    fields: int | None
    only: tuple[int, ...] | None = None


def prefetch_columns(model: nn.Module) -> list[EarlyColumn]:
    """Return each pair of a table and a column of ids to fetch early, once."""
    pairs = {
        (module.spec.name, module.prefetch): EarlyColumn(
            module.spec, module.prefetch, module.fields, module.only
        )
        for module in _modules(model)
        if module.prefetch is not None and module.spec.trainable
    }
    return list(pairs.values())


def _modules(model: nn.Module) -> list[TableModule]:
    return [module for module in model.modules() if isinstance(module, TableModule)]
