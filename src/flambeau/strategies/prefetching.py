"""Rows of the next batch, fetched while this one computes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from torch import Tensor

from flambeau.config.tables import TableSpec
from flambeau.data.batch import Batch
from flambeau.embeddings.backend import TableGradient
from flambeau.embeddings.lookups import Lookups
from flambeau.errors import ModelError
from flambeau.parameter_server.client import PendingPull, ServerClient
from flambeau.tables.hashing import Ids
from flambeau.tables.row_kernels import Fold

Array = np.ndarray[Any, Any]


@dataclass
class _Early:
    """The next batch's distinct ids of one table; `later` marks those that the push brings."""

    spec: TableSpec
    ids: Ids
    later: Any


@final
class Prefetcher:
    """Fetches ids(t+1) without ids(t) while batch t computes.

    The rows that both have come back in the answer to t's push, so a worker that is alone sees
    exactly what it would see without prefetching.
    """

    def __init__(
        self,
        client: ServerClient,
        lookups: Lookups,
        columns: Sequence[tuple[TableSpec, str]],
    ) -> None:
        self._client, self._lookups, self._columns = client, lookups, columns
        self._fold = Fold()
        self._batch: Batch | None = None
        self._now: dict[str, Ids] = {}
        self._early: list[_Early] = []
        self._pending: PendingPull | None = None

    def look_ahead(self, batch: Batch, upcoming: Batch | None) -> None:
        """Supply the rows of `batch` that were fetched early; begin to fetch for the next."""
        if not self._columns:
            return
        if batch is not self._batch:
            self._forget()
            ids = self._ids_of(batch)
            rows = self._client.pull(list(ids.values()), training=True)
            self._prime(list(ids.values()), rows)
        self._batch = upcoming
        if upcoming is not None:
            self._fetch(upcoming)

    def wanted(self, gradients: Sequence[TableGradient]) -> list[tuple[TableSpec, Ids]]:
        """The rows of the next batch that must come after this batch's gradients."""
        pushed = {gradient.spec.name: gradient.ids for gradient in gradients}
        for early in self._early:
            ids = pushed.get(early.spec.name)
            if ids is not None and ids.size:
                early.later |= self._among(early.ids, ids)
        return [(early.spec, early.ids[early.later]) for early in self._early]

    def arrived(self, rows: Sequence[Array]) -> None:
        """The rows that `wanted` asked for are here: the next batch has all it needs."""
        if not self._early:
            return
        fetched: Sequence[Array] = ()
        if self._pending is not None:
            fetched = self._client.finish_pull(self._pending)
        early, self._early, self._pending = self._early, [], None
        whole = []
        for index, item in enumerate(early):
            values = np.empty((item.ids.size, item.spec.dim), rows[index].dtype)
            asked = self._asked[index]
            values[asked] = fetched[index]
            values[item.later] = rows[index]
            whole.append(values)
        self._prime([(item.spec, item.ids) for item in early], whole)

    def _fetch(self, upcoming: Batch) -> None:
        for name, (spec, ids) in self._ids_of(upcoming).items():
            later = self._among(ids, self._now.get(name, np.empty(0, np.int64)))
            self._early.append(_Early(spec, ids, later))
        self._asked = [~early.later for early in self._early]
        wanted = [
            (early.spec, early.ids[asked])
            for early, asked in zip(self._early, self._asked, strict=True)
        ]
        self._pending = self._client.begin_pull(wanted, training=True)

    def _ids_of(self, batch: Batch) -> dict[str, tuple[TableSpec, Ids]]:
        """The distinct ids of each table in a batch, over all columns that hold some."""
        columns: dict[str, list[Ids]] = {}
        specs = {}
        for spec, name in self._columns:
            column = batch.columns.get(name)
            if not isinstance(column, Tensor):
                raise ModelError(
                    f"prefetch='{name}' of table '{spec.name}': the batch has no such column of "
                    f"ids; it has {', '.join(batch.columns)}"
                )
            specs[spec.name] = spec
            columns.setdefault(spec.name, []).append(column.reshape(-1).long().cpu().numpy())
        return {
            name: (specs[name], self._fold(np.ascontiguousarray(np.concatenate(parts)))[0])
            for name, parts in columns.items()
        }

    def _prime(self, found: Sequence[tuple[TableSpec, Ids]], rows: Sequence[Array]) -> None:
        for (spec, ids), values in zip(found, rows, strict=True):
            self._lookups.prime(spec, ids, values)
            self._now[spec.name] = ids

    def _among(self, ids: Ids, others: Ids) -> Any:
        """Which of the distinct `ids` are among the distinct `others`."""
        _, inverse = self._fold(np.concatenate([others, ids]))
        return inverse[others.size :] < others.size

    def _forget(self) -> None:
        """Rows that were fetched for a batch that did not come."""
        if self._pending is not None:
            self._client.finish_pull(self._pending)
        self._early, self._pending = [], None
