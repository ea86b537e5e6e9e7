"""Prefetching: rows of the next batch are fetched while the current one computes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from torch import Tensor

from flambeau.config.tables import TableSpec
from flambeau.data.batch import Batch
from flambeau.data.jagged import Jagged
from flambeau.embeddings.attach import EarlyColumn
from flambeau.embeddings.backend import TableGradient
from flambeau.embeddings.lookups import Lookups
from flambeau.errors import ModelError
from flambeau.parameter_server.client import PendingPull, ServerClient
from flambeau.tables.index.id_positions import IdPositions
from flambeau.tables.index.ids import Ids

Array = np.ndarray[Any, Any]

_NO_IDS = np.empty(0, np.int64)


@dataclass
class _Early:
    """Distinct ids of one table in the next batch, with the positions requested early and later.

    Rows of `later` come with the answer to the push and override those `asked` for early; None
    means all rows come later.
    """

    spec: TableSpec
    ids: Ids
    asked: Array
    later: Array | None
    values: Array | None = None


@final
class Prefetcher:
    """Prefetcher that requests ids(t+1) without ids(t) while batch t computes.

    The rows of both batches return with the answer to t's push, so a single worker gets exactly the
    values that it would get without prefetching. From servers on the same machine all rows come
    with that answer: there is no network delay to hide, and the rows include more updates. This
    does not apply if the model is on a `gpu`, which leaves the cores to the servers meanwhile.
    """

    def __init__(
        self,
        client: ServerClient,
        lookups: Lookups,
        columns: Sequence[EarlyColumn],
        *,
        gpu: bool = False,
    ) -> None:
        self._client, self._lookups, self._columns = client, lookups, columns
        self._gpu = gpu
        #: The place (epoch, index) of the batch that rows were fetched for.
        self._announced: tuple[int, int] | None = None
        self._now: dict[str, Ids] = {}
        self._early: list[_Early] = []
        self._pending: PendingPull | None = None
        self._membership = IdPositions()

    def look_ahead(self, batch: Batch, upcoming: Batch | None) -> None:
        """Supply the rows of `batch` that were fetched early; start to fetch `upcoming`'s."""
        if not self._columns:
            return
        if batch.place != self._announced:
            self._forget()
            ids = self._ids_of(batch)
            rows = self._client.pull(list(ids.values()), training=True)
            self._prime(list(ids.values()), rows)
        self._announced = None if upcoming is None else upcoming.place
        if upcoming is not None:
            self._fetch(upcoming)

    def wanted(self, gradients: Sequence[TableGradient]) -> list[tuple[TableSpec, Ids]]:
        """Return the rows of the next batch to request with this batch's gradients."""
        pushed = {gradient.spec.name: gradient.ids for gradient in gradients}
        for early in self._early:
            name = early.spec.name
            ids = pushed.get(name)
            if early.later is None or ids is None or not ids.size:
                continue
            # Ids that the batch named were handled when its rows were requested.
            if ids is not self._now.get(name):
                early.later = np.union1d(early.later, self._membership.places(early.ids, ids))
        return [
            (early.spec, early.ids if early.later is None else early.ids[early.later])
            for early in self._early
        ]

    def arrived(self, rows: Sequence[Array]) -> None:
        """Take the rows that `wanted` requested: the next batch then has all its rows."""
        if not self._early:
            return
        self._place_fetched()
        early, self._early = self._early, []
        whole = []
        for item, brought in zip(early, rows, strict=True):
            if item.later is None:
                whole.append(brought)
                continue
            assert item.values is not None
            item.values[item.later] = brought
            whole.append(item.values)
        self._prime([(item.spec, item.ids) for item in early], whole)

    def prepare(self, upcoming: Batch | None) -> None:
        """Do the work for the next two batches that does not depend on the answer to the push."""
        self._place_fetched()
        if upcoming is not None:
            after = self._ids_of(upcoming)
            for early in () if self._all_later else self._early:
                if early.spec.name in after:
                    self._membership.places(after[early.spec.name][1], early.ids)

    def _place_fetched(self) -> None:
        """Copy the rows that were requested early to their positions."""
        if self._pending is None:
            return
        fetched, self._pending = self._client.finish_pull(self._pending), None
        for item, rows in zip(self._early, fetched, strict=True):
            item.values = np.empty((item.ids.size, item.spec.dim), rows.dtype)
            item.values[item.asked] = rows

    def _fetch(self, upcoming: Batch) -> None:
        found = self._ids_of(upcoming)
        if self._all_later:
            self._early = [_Early(spec, ids, _NO_IDS, None) for spec, ids in found.values()]
            return
        for name, (spec, ids) in found.items():
            later = self._membership.places(ids, self._now.get(name, _NO_IDS))
            asked = np.ones(ids.size, np.bool_)
            asked[later] = False
            self._early.append(_Early(spec, ids, np.flatnonzero(asked), later))
        wanted = [(early.spec, early.ids[early.asked]) for early in self._early]
        self._pending = self._client.begin_pull(wanted, training=True)

    @property
    def _all_later(self) -> bool:
        """Return whether requesting rows before the push gains nothing."""
        return self._client.near and not self._gpu

    def _ids_of(self, batch: Batch) -> dict[str, tuple[TableSpec, Ids]]:
        """Return the distinct ids of each table in a batch, over all its columns."""
        columns: dict[str, list[Tensor]] = {}
        specs = {}
        for early in self._columns:
            spec, column = early.spec, batch.columns.get(early.name)
            if not isinstance(column, Tensor | Jagged):
                raise ModelError(
                    f"prefetch='{early.name}' of table '{spec.name}': the batch has no such column "
                    f"of ids; it has {', '.join(batch.columns)}"
                )
            specs[spec.name] = spec
            ids = self._lookups.folds.flat(column, early.fields, early.only)
            columns.setdefault(spec.name, []).append(ids)
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

    def _forget(self) -> None:
        """Discard rows that were fetched for a batch that was not trained on."""
        if self._pending is not None:
            self._client.finish_pull(self._pending)
        self._early, self._pending = [], None
