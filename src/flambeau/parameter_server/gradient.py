"""A gradient of a shard's tables and dense weights, and the mean of several."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flambeau.tables.index.ids import Ids
from flambeau.tables.index.unique_ids import Fold
from flambeau.tables.row_kernels import sum_by

Array = np.ndarray[Any, Any]


@dataclass
class Gradient:
    """Gradient of one push. `tables` are (ids, grads [n, dim]) by the number of the table.

    It contains each table that was looked up, even if none of the ids belong to this shard, so that
    all shards count the same updates. `absent` are dense parameters that had no gradient.
    """

    tables: dict[int, tuple[Ids, Array]] = field(default_factory=dict)
    dense: Array | None = None
    absent: frozenset[int] = frozenset()
    rates: Sequence[float] = ()
    factor: float = 1.0

    def squares(self) -> float:
        """Return the squared norm of the whole gradient."""
        parts = [grads.reshape(-1) for _, grads in self.tables.values()]
        parts += [self.dense] if self.dense is not None else []
        return float(sum(float(np.dot(part, part)) for part in parts))

    def clamp(self, limit: float) -> None:
        """Limit every number to ±`limit`, in place."""
        for _, grads in self.tables.values():
            np.clip(grads, -limit, limit, out=grads)
        if self.dense is not None:
            np.clip(self.dense, -limit, limit, out=self.dense)

    def scale(self, factor: float) -> None:
        """Multiply all numbers by `factor`, in place."""
        if factor == 1.0:
            return
        for _, grads in self.tables.values():
            grads *= factor
        if self.dense is not None:
            self.dense *= factor


def weighted_mean(gradients: Sequence[tuple[float, Gradient]], fold: Fold) -> Gradient:
    """Return the weighted mean of gradients, summed in the order given, in new arrays.

    Gradients of weight 0 (of workers that had no rows) are ignored.
    """
    total = sum(weight for weight, _ in gradients)
    heard = [(weight / total, gradient) for weight, gradient in gradients if weight > 0]
    if not heard:
        return Gradient()
    first = heard[0][1]
    return Gradient(
        tables=_mean_of_tables(heard, fold),
        dense=_mean_of_dense(heard),
        absent=frozenset.intersection(*(gradient.absent for _, gradient in heard)),
        rates=first.rates,
        factor=first.factor,
    )


def _mean_of_dense(heard: Sequence[tuple[float, Gradient]]) -> Array | None:
    total: Array | None = None
    for share, gradient in heard:
        if gradient.dense is None:
            continue
        part = gradient.dense * gradient.dense.dtype.type(share)
        total = part if total is None else np.add(total, part, out=total)
    return total


def _mean_of_tables(
    heard: Sequence[tuple[float, Gradient]], fold: Fold
) -> dict[int, tuple[Ids, Array]]:
    numbers = sorted({number for _, gradient in heard for number in gradient.tables})
    means = {}
    for number in numbers:
        parts = [(s, *g.tables[number]) for s, g in heard if number in g.tables]
        ids = np.concatenate([ids for _, ids, _ in parts])
        grads = np.concatenate([grads * grads.dtype.type(share) for share, _, grads in parts])
        means[number] = (ids, grads) if len(parts) == 1 else _folded(ids, grads, fold)
    return means


def _folded(ids: Ids, grads: Array, fold: Fold) -> tuple[Ids, Array]:
    distinct, inverse = fold(ids)
    total = np.zeros((distinct.size, grads.shape[1]), grads.dtype)
    sum_by(inverse, grads, total)
    return distinct, total
