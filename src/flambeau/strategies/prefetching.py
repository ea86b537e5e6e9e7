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
from flambeau.tables.ids import Ids

Array = np.ndarray[Any, Any]

_NO_IDS = np.empty(0, np.int64)


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
            name = early.spec.name
            ids = pushed.get(name)
            # Those that the batch named have been seen to when its rows were asked for.
            if ids is not None and ids.size and ids is not self._now.get(name):
                early.later = early.later | self._among(early.ids, ids)
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

    def fold(self, upcoming: Batch | None) -> None:
        """Find the distinct ids of a batch while there is nothing else to do."""
        if upcoming is not None:
            self._ids_of(upcoming)

    def _fetch(self, upcoming: Batch) -> None:
        found: dict[tuple[int, int], Any] = {}
        for name, (spec, ids) in self._ids_of(upcoming).items():
            now = self._now.get(name, _NO_IDS)
            # Tables that share a column share the answer.
            key = id(ids), id(now)
            if key not in found:
                found[key] = self._among(ids, now)
            self._early.append(_Early(spec, ids, found[key]))
        self._asked = [~early.later for early in self._early]
        wanted = [
            (early.spec, early.ids[asked])
            for early, asked in zip(self._early, self._asked, strict=True)
        ]
        self._pending = self._client.begin_pull(wanted, training=True)

    def _ids_of(self, batch: Batch) -> dict[str, tuple[TableSpec, Ids]]:
        """The distinct ids of each table in a batch, over all columns that hold some."""
        columns: dict[str, list[Tensor]] = {}
        specs = {}
        for spec, name in self._columns:
            column = batch.columns.get(name)
            if not isinstance(column, Tensor):
                raise ModelError(
                    f"prefetch='{name}' of table '{spec.name}': the batch has no such column of "
                    f"ids; it has {', '.join(batch.columns)}"
                )
            specs[spec.name] = spec
            columns.setdefault(spec.name, []).append(column)
        return {name: (specs[name], self._distinct(parts)) for name, parts in columns.items()}

    def _distinct(self, columns: Sequence[Tensor]) -> Ids:
        folds = self._lookups.folds
        if len(columns) == 1:
            return folds(columns[0])[0]
        return folds.arrays(np.concatenate([folds(column)[0] for column in columns]))[0]

    def _prime(self, found: Sequence[tuple[TableSpec, Ids]], rows: Sequence[Array]) -> None:
        for (spec, ids), values in zip(found, rows, strict=True):
            self._lookups.prime(spec, ids, values)
            self._now[spec.name] = ids

    def _among(self, ids: Ids, others: Ids) -> Any:
        """Which of the distinct `ids` are among the distinct `others`."""
        _, inverse = self._lookups.folds.arrays(np.concatenate([others, ids]))
        return inverse[others.size :] < others.size

    def _forget(self) -> None:
        """Rows that were fetched for a batch that did not come."""
        if self._pending is not None:
            self._client.finish_pull(self._pending)
        self._early, self._pending = [], None
