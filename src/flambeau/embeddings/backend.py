"""The seam between a model and its tables: rows for ids."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from flambeau.config.settings import differences
from flambeau.config.tables import TableSpec
from flambeau.errors import ModelError
from flambeau.tables.index.ids import Ids

Array = np.ndarray[Any, Any]


@final
@dataclass(frozen=True)
class TableGradient:
    """Gradient of one step for one table: distinct `ids` [n] and their gradients [n, dim].

    `n` is 0 if the table was looked up without effect on the loss. The receiver owns the arrays.
    """

    spec: TableSpec
    ids: Ids
    grads: Array


class LookupBackend(ABC):
    """Source of table rows for a model.

    Writing is not part of it: tables of this process take gradients by `InProcessTables.push`,
    servers by `ServerClient.begin_push`, and tables of a finished run or an export take none.
    """

    @abstractmethod
    def declare(self, specs: Sequence[TableSpec]) -> None:
        """Declare tables before they are used; one that is declared already must be the same."""

    @abstractmethod
    def pull(self, wanted: Sequence[tuple[TableSpec, Ids]], *, training: bool) -> list[Array]:
        """Return the rows [n, dim] of distinct ids, one array for each pair. Changes nothing.

        An id without a row gets the first values it would start with when `training`, otherwise the
        default row. The arrays belong to the caller.
        """


def by_name(
    specs: Iterable[TableSpec], known: Mapping[str, TableSpec] | None = None
) -> dict[str, TableSpec]:
    """Return `known` and the distinct specs by name; raise `ModelError` if two of a name differ."""
    found = dict(known or {})
    for spec in specs:
        first = found.setdefault(spec.name, spec)
        if first != spec:
            raise ModelError(
                f"two tables are named '{spec.name}' and differ: {differences(first, spec)}; give "
                "them different names, or both modules the same spec to share one table"
            )
    return found
