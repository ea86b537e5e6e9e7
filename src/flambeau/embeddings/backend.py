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
    """What one step says about one table: distinct `ids` [n] and their gradients [n, dim].

    `n` may be 0: the table was looked up, and nothing came of it. Who gets it owns the arrays.
    """

    spec: TableSpec
    ids: Ids
    grads: Array


class LookupBackend(ABC):
    """Where a model reads the rows of tables.

    Writing is not part of it: tables of this process take gradients by `InProcessTables.push`,
    servers by `ServerClient.begin_push`, and tables of a finished run or an export none.
    """

    @abstractmethod
    def declare(self, specs: Sequence[TableSpec]) -> None:
        """Make tables known before they are used; one that is known already must be the same."""

    @abstractmethod
    def pull(self, wanted: Sequence[tuple[TableSpec, Ids]], *, training: bool) -> list[Array]:
        """The rows [n, dim] of distinct ids, one array for each pair. Changes nothing.

        An id without a row gets the first values it would start with when `training`, otherwise the
        default row. The arrays belong to the caller.
        """


def by_name(
    specs: Iterable[TableSpec], known: Mapping[str, TableSpec] | None = None
) -> dict[str, TableSpec]:
    """`known` and the distinct specs, by name; two different ones of one name are an error."""
    found = dict(known or {})
    for spec in specs:
        first = found.setdefault(spec.name, spec)
        if first != spec:
            raise ModelError(
                f"two tables are named '{spec.name}' and differ: {differences(first, spec)}; give "
                "them different names, or both modules the same spec to share one table"
            )
    return found
