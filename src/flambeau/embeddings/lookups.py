"""What one training step looks up, and the gradients that come back."""

from dataclasses import dataclass, field
from typing import final

import numpy as np
import torch
from torch import Tensor

from flambeau.config.tables import TableSpec
from flambeau.embeddings.backend import Array, LookupBackend, TableGradient
from flambeau.embeddings.stopwatch import Stopwatch
from flambeau.embeddings.unique_ids import Folds
from flambeau.tables.index.ids import Ids
from flambeau.tables.row_kernels import sum_by


@final
@dataclass
class _Step:
    """One table in one step: rows that are here already, and each look-up with its leaf."""

    spec: TableSpec
    ids: Ids
    values: Array
    used: list[tuple[Ids, Tensor]] = field(default_factory=list)


@final
class Lookups:
    """Looks ids up for the modules of a model, each id once per table and step.

    A step ends with `gradients` or `discard`. Until then an id keeps the values it was first seen
    with, so several forward and backward passes belong together and their gradients add up.

    The counters are of training look-ups: `ids_seen / ids_distinct` is the de-duplication factor;
    `hits` of the distinct ids were here already (primed, or seen before in the step), `misses` were
    pulled. `watch` is for the time that goes into tables: look-ups, sums of gradients, updates.
    """

    def __init__(self, backend: LookupBackend) -> None:
        self.backend = backend
        self.ids_seen = self.ids_distinct = self.hits = self.misses = 0
        self.folds = Folds()
        self.watch = Stopwatch()
        self._steps: dict[str, _Step] = {}

    def rows(self, spec: TableSpec, ids: Tensor, training: bool) -> tuple[Tensor, Tensor]:
        """The rows [u, dim] of the distinct `ids` (int64 [n]), and which is whose (int32 [n]).

        When training a table that learns, and with gradients enabled, the rows are a leaf whose
        gradient `gradients` will give.
        """
        unique, inverse = self.folds(ids)
        if training and spec.trainable:
            rows = self._training_rows(spec, unique, ids.numel())
        else:
            # Rows that never learn are never made: an unknown id reads as it will in prediction.
            rows = torch.from_numpy(self._pull(spec, unique, training=False))
        return rows, torch.from_numpy(inverse)

    def prime(self, spec: TableSpec, ids: Ids, rows: Array) -> None:
        """Supply rows [n, dim] of distinct ids, fetched early, for the step that begins.

        Call it after the `gradients` of the step before; the array belongs to this object then.
        """
        step = self._steps.get(spec.name)
        if step is None:
            # Memory received from elsewhere may be read-only, which a tensor cannot be.
            values = rows if rows.flags.writeable else rows.copy()
            self._steps[spec.name] = _Step(spec, ids, values)
            return
        places = self._places(step, ids)
        is_new = places >= step.ids.size
        self._add(step, ids[is_new], rows[is_new])

    def gradients(self) -> list[TableGradient]:
        """The gradients since the last call, one for each table that learns and was looked up."""
        with self.watch:
            found = [self._gradient(step) for step in self._steps.values() if step.used]
        self.discard()
        return found

    def discard(self) -> None:
        """Forget the look-ups since the last `gradients`."""
        self._steps.clear()

    def _training_rows(self, spec: TableSpec, unique: Ids, seen: int) -> Tensor:
        self.ids_seen += seen
        self.ids_distinct += unique.size
        step, values = self._values(spec, unique)
        rows = torch.from_numpy(values)
        if torch.is_grad_enabled():
            rows.requires_grad_()
            step.used.append((unique, rows))
        return rows

    def _values(self, spec: TableSpec, wanted: Ids) -> tuple[_Step, Array]:
        """The values of distinct ids: those that are here, and the others pulled."""
        step = self._steps.get(spec.name)
        if step is None:
            step = _Step(spec, wanted, self._pull(spec, wanted, training=True))
            self._steps[spec.name] = step
            self.misses += wanted.size
            return step, step.values
        if step.ids is wanted or np.array_equal(step.ids, wanted):
            self.hits += wanted.size
            return step, step.values
        places = self._places(step, wanted)
        missing = wanted[places >= step.ids.size]
        self.misses += missing.size
        self.hits += wanted.size - missing.size
        if missing.size:
            self._add(step, missing, self._pull(spec, missing, training=True))
        return step, step.values.take(places, axis=0)

    def _places(self, step: _Step, wanted: Ids) -> Array:
        """Where among the step's ids each wanted one is; new ones are numbered on from the end."""
        _, inverse = self.folds.arrays(np.concatenate([step.ids, wanted]))
        return inverse[step.ids.size :]

    @staticmethod
    def _add(step: _Step, ids: Ids, values: Array) -> None:
        step.ids = np.concatenate([step.ids, ids])
        step.values = np.concatenate([step.values, values])

    def _pull(self, spec: TableSpec, ids: Ids, *, training: bool) -> Array:
        (values,) = self.backend.pull([(spec, ids)], training=training)
        return values

    def _gradient(self, step: _Step) -> TableGradient:
        parts = [(ids, rows.grad.numpy()) for ids, rows in step.used if rows.grad is not None]
        if not parts:
            nothing = np.empty((0, step.spec.dim), step.values.dtype)
            return TableGradient(step.spec, np.empty(0, np.int64), nothing)
        if len(parts) == 1:
            return TableGradient(step.spec, *parts[0])
        ids, inverse = self.folds.arrays(np.concatenate([ids for ids, _ in parts]))
        total = np.zeros((ids.size, step.spec.dim), step.values.dtype)
        sum_by(inverse, np.concatenate([grads for _, grads in parts]), total)
        return TableGradient(step.spec, ids, total)
