"""Drift: the difference between the values of a column in two groups of rows."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np

Array = np.ndarray[Any, Any]

#: Number of intervals with equal shares of the first group, and of values with bins of their own.
_INTERVALS, _VALUES = 10, 20


@final
@dataclass(frozen=True)
class Drift:
    """The population stability index of two groups, and its average by chance alone.

    The index is the sum over bins of (share - other share) * log(share / other share). By
    convention, less than 0.1 is no drift, and more than 0.25 is strong drift.
    """

    index: float
    chance: float

    @property
    def is_certain(self) -> bool:
        """Return whether the index is far above that of chance."""
        return self.index > 3 * self.chance


def drift_between(one: Array, other: Array, ordered: bool) -> Drift | None:
    """Return the drift from one group of values to another; None if one has no values.

    The values are numbers, which are divided into intervals, or (not `ordered`) keys, of which the
    most frequent have bins of their own. Missing values, of masked arrays, are in one more bin.
    """
    if not len(one) or not len(other):
        return None
    bins = _intervals(one) if ordered else _frequent(one)
    counts = np.stack([_counted(values, *bins, ordered) for values in (one, other)])
    counts = counts[:, counts.any(axis=0)]
    sizes, number = counts.sum(axis=1, keepdims=True), counts.shape[1]
    # Add one value, spread like those of both groups, so that no share is 0.
    shares = (counts + counts.sum(axis=0) / sizes.sum()) / (sizes + 1)
    index = float(((shares[0] - shares[1]) * np.log(shares[0] / shares[1])).sum())
    return Drift(index, (number - 1) * float((1 / sizes).sum()))


def _present(values: Array) -> Array:
    return np.ma.compressed(values)


def _intervals(values: Array) -> tuple[Array, Array]:
    """Return bounds of intervals with about equal shares of values, and which bounds are common.

    A bound that many rows have is a bin of its own.
    """
    present = np.sort(_present(values))
    places = np.arange(1, _INTERVALS) * len(present) // _INTERVALS
    bounds = np.unique(present[places]) if len(present) else present
    having = np.searchsorted(present, bounds, "right") - np.searchsorted(present, bounds, "left")
    return bounds, having * 2 * _INTERVALS >= len(values)


def _frequent(keys: Array) -> tuple[Array, Array]:
    """Return the most frequent keys; all others are in one bin."""
    distinct, counts = np.unique(_present(keys), return_counts=True)
    bounds = distinct[np.argsort(-counts, kind="stable")[:_VALUES]]
    return np.sort(bounds), np.ones(len(bounds), np.bool_)


def _counted(values: Array, bounds: Array, common: Array, ordered: bool) -> Array:
    """Return how many values are missing, between bounds, and at those bounds that are common."""
    present, size = _present(values), len(bounds)
    at = np.searchsorted(bounds, present, side="left")
    known = np.flatnonzero(at < size)
    equal = np.zeros(len(present), np.bool_)
    equal[known] = (bounds[at[known]] == present[known]) & common[at[known]]
    counts = np.bincount(np.where(equal, size + 2 + at, 1 + at * ordered), minlength=2 * size + 2)
    counts[0] = len(values) - len(present)
    return counts
