"""The lookups of one training step, and their gradients."""

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
    """One table in one step: the rows fetched so far, and each lookup with its leaf tensor."""

    spec: TableSpec
    ids: Ids
    values: Array
    used: list[tuple[Ids, Tensor]] = field(default_factory=list)


@final
class Lookups:
    """Lookups for the modules of a model, which fetch each id once per table and step.

    A step ends with `gradients` or `discard`. Until then an id keeps the values of its first
    lookup, so several forward and backward passes belong together and their gradients add up.

    The counters are of training lookups: `ids_seen / ids_distinct` is the de-duplication factor;
    `hits` of the distinct ids were present (primed, or seen before in the step), `misses` were
    pulled. `watch` measures the time spent on tables: lookups, sums of gradients, updates.
    """

    def __init__(self, backend: LookupBackend) -> None:
        self.backend = backend
        self.ids_seen = self.ids_distinct = self.hits = self.misses = 0
        self.folds = Folds()
        self.watch = Stopwatch()
        self._steps: dict[str, _Step] = {}

    def rows(self, spec: TableSpec, ids: Tensor, training: bool) -> tuple[Tensor, Tensor]:
        """Return the rows [u, dim] of distinct `ids` (int64 [n]), and each id's row (int32 [n]).

        When training a trainable table with gradients enabled, the rows are a leaf whose gradient
        `gradients` will return.
        """
        unique, inverse = self.folds(ids)
        if training and spec.trainable:
            rows = self._training_rows(spec, unique, ids.numel())
        else:
            # Rows that never learn are never created: an unknown id reads as it will in prediction.
            rows = torch.from_numpy(self._pull(spec, unique, training=False))
        return rows, torch.from_numpy(inverse)

    def prime(self, spec: TableSpec, ids: Ids, rows: Array) -> None:
        """Supply rows [n, dim] of distinct ids, fetched early, for the next step.

        Call it after `gradients` of the step before; this object then owns the array.
        """
        step = self._steps.get(spec.name)
        if step is None:
            # Received memory may be read-only, which a tensor cannot be.
            values = rows if rows.flags.writeable else rows.copy()
            self._steps[spec.name] = _Step(spec, ids, values)
            return
        places = self._places(step, ids)
        is_new = places >= step.ids.size
        self._add(step, ids[is_new], rows[is_new])

    def gradients(self) -> list[TableGradient]:
        """Return the gradients since the last call, one per trainable table that was looked up."""
        with self.watch:
            found = [self._gradient(step) for step in self._steps.values() if step.used]
        self.discard()
        return found

    def discard(self) -> None:
        """Discard the lookups since the last `gradients`."""
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
        """Return the values of distinct ids, pulling those that are missing."""
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
        """Return each wanted id's position among the step's ids; new ids come after these."""
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
