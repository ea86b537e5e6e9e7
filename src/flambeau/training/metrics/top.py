"""Metrics of the first k of a ranking: recall@k and NDCG@k."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, final

import numpy as np

from flambeau.errors import ConfigError
from flambeau.training.metrics.base import Metric, State, ratio
from flambeau.training.metrics.ranking import changes, group_ids
from flambeau.training.metrics.rows import Array, LabelledRows

_COLUMNS = {
    "groups": np.int64,
    "scores": np.float32,
    "gains": np.float64,
    "weights": np.float64,
}


class TopMetric(Metric):
    """Metric of the `k` highest scores of each ranking, averaged over rankings.

    With one output per row, a ranking is a group (`group=`), and a row's label is its gain; a group
    counts with the mean weight of its rows, and is ignored if it has no gain. Every row's score is
    kept (28 bytes). Without groups, and with outputs of [rows, classes], each row is a ranking of
    the classes, of which one is correct.

    Any order of equal scores is equally likely: the result is the mean over all orders.
    """

    higher_is_better = True
    #: Start of the name; `k` follows.
    prefix: ClassVar[str]

    def __init__(
        self, k: int, *, loss_name: str | None = None, exact_rows: int = 5_000_000
    ) -> None:
        super().__init__(loss_name=loss_name, exact_rows=exact_rows)
        self._k = k
        self.clear()

    def clear(self) -> None:
        self._sums = np.zeros(2)
        self._chunks: list[State] = []

    def _add(self, rows: LabelledRows) -> None:
        name = f"{self.prefix}@{self._k}"
        if rows.group is None:
            if rows.output.ndim == 2:
                self._sums += self._of_classes(rows)
                return
            raise ConfigError(f"metric '{name}' needs group=: the column of the user or query")
        # A NaN score has no rank; a NaN weight makes the result NaN instead of a wrong number.
        scores = rows.score(name)
        weights = np.where(np.isnan(scores), np.nan, rows.weight)
        found = (group_ids(rows.group), scores, rows.label, weights)
        self._chunks.append(_typed(dict(zip(_COLUMNS, found, strict=True))))

    def state(self) -> State:
        return {"sums": self._sums, **_joined(self._chunks)}

    def add(self, state: State) -> None:
        self._sums += state["sums"]
        self._chunks.append({name: state[name] for name in _COLUMNS})

    def compute(self) -> float:
        values, weights = self._of_groups(_joined(self._chunks))
        total, weight = self._sums
        return ratio(total + (values * weights).sum(), weight + weights.sum())

    def _of_classes(self, rows: LabelledRows) -> Array:
        """Return the sum of weight x value over rows, and the sum of the weights."""
        own = np.take_along_axis(rows.output, rows.label.astype(np.int64)[:, None], axis=1)
        before = (rows.output > own).sum(axis=1)
        equal = (rows.output == own).sum(axis=1)
        share = self._worth(before + equal) - self._worth(before)
        values = np.divide(share, equal, out=np.full(len(own), np.nan), where=equal != 0)
        return np.array([(values / self._worth(1) * rows.weight).sum(), rows.weight.sum()])

    def _of_groups(self, columns: State) -> tuple[Array, Array]:
        """Return the value and the weight of each group that has a gain."""
        if not columns["groups"].size:
            return np.zeros(0), np.zeros(0)
        gains = self._gains(columns["gains"])
        found, starts = self._total(columns, columns["scores"], gains)
        most, _ = self._total(columns, gains, gains)
        order = np.argsort(columns["groups"], kind="stable")
        weights = np.add.reduceat(columns["weights"][order], starts)
        weights /= np.diff(starts, append=order.size)
        best = self._best(most, np.add.reduceat(gains[order], starts))
        counted = (best > 0.0) & (weights != 0.0)
        return found[counted] / best[counted], weights[counted]

    def _total(self, columns: State, scores: Array, gains: Array) -> tuple[Array, Array]:
        """Return the gain of each group's order by scores, and the starts of groups."""
        order = np.lexsort((-scores, columns["groups"]))
        new_group = changes(columns["groups"][order])
        starts = np.flatnonzero(new_group)
        ties = np.flatnonzero(new_group | changes(scores[order]))
        first = np.repeat(starts, np.diff(starts, append=order.size))[ties]
        before = ties - first
        behind = np.append(ties[1:], order.size) - first
        share = (self._worth(behind) - self._worth(before)) / (behind - before)
        worth = share * np.add.reduceat(gains[order], ties)
        return np.add.reduceat(worth, np.flatnonzero(new_group[ties])), starts

    @abstractmethod
    def _worth(self, places: Array | int) -> Array:
        """Return the sum of the discounts of the first `places` places."""

    @abstractmethod
    def _gains(self, labels: Array) -> Array:
        """Return the gains of rows with these labels."""

    @abstractmethod
    def _best(self, most: Array, all: Array) -> Array:
        """Return the denominator of a group's value: its best possible gain, or its total gain."""


@final
class RecallAt(TopMetric):
    """Share of a ranking's relevant rows (label above 0.5) that are among its first k."""

    name = "recall@k"
    prefix = "recall"

    def _worth(self, places: Array | int) -> Array:
        return np.minimum(places, self._k).astype(np.float64)

    def _gains(self, labels: Array) -> Array:
        return (labels > 0.5).astype(np.float64)

    def _best(self, most: Array, all: Array) -> Array:
        return all


@final
class NdcgAt(TopMetric):
    """Sum of label / log2(place + 1) over the first k, divided by its best possible value."""

    name = "ndcg@k"
    prefix = "ndcg"

    def _worth(self, places: Array | int) -> Array:
        discounts = 1.0 / np.log2(np.arange(2, self._k + 2))
        return np.append(0.0, np.cumsum(discounts))[np.minimum(places, self._k)]

    def _gains(self, labels: Array) -> Array:
        return np.maximum(labels, 0.0)

    def _best(self, most: Array, all: Array) -> Array:
        return most


def _typed(columns: State) -> State:
    return {name: columns[name].astype(dtype, copy=False) for name, dtype in _COLUMNS.items()}


def _joined(chunks: Sequence[State]) -> State:
    empty = {name: np.zeros(0, dtype) for name, dtype in _COLUMNS.items()}
    return {name: np.concatenate([chunk[name] for chunk in (empty, *chunks)]) for name in _COLUMNS}
