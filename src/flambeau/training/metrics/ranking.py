"""Area under the ROC curve, over all rows and within groups."""

import hashlib
from typing import final

import numpy as np

from flambeau.errors import ConfigError
from flambeau.training.metrics.base import Metric, State, ratio
from flambeau.training.metrics.rows import Array, LabelledRows, log_odds

_BINS = 2**16
_SMALLEST, _LARGEST = 1e-3, 1e6


class _ScoredRows:
    """Scores (float32), labels, weights and groups of rows, collected in chunks."""

    _TYPES = (("scores", np.float32), ("positive", np.bool_), ("weights", np.float64))

    def __init__(self, grouped: bool = False) -> None:
        group = (("groups", np.int64),) if grouped else ()
        self._chunks: dict[str, list[Array]] = {
            name: [np.zeros(0, dtype)] for name, dtype in (*self._TYPES, *group)
        }
        self.count = 0

    def add(self, columns: State) -> None:
        for name, chunks in self._chunks.items():
            chunks.append(columns[name].astype(chunks[0].dtype, copy=False))
        self.count += len(columns["scores"])

    def columns(self) -> State:
        for name, chunks in self._chunks.items():
            self._chunks[name] = [np.concatenate(chunks)]
        return {name: chunks[0] for name, chunks in self._chunks.items()}


@final
class Auc(Metric):
    """Probability that a row of class 1 scores higher than one of class 0; ties count half.

    Exact up to `exact_rows` rows over all workers. Above, scores are counted in 65,536 bins whose
    width is 6.4e-4 of the logit's size: two rows closer than that count as a tie. The error is at
    most half the share of (class 1, class 0) pairs in one bin, for logits spread over several units
    below 1e-3. NaN if only one class occurs, or if a score is NaN.
    """

    name = "auc"
    binary = True
    higher_is_better = True

    def __init__(self, *, loss_name: str | None = None, exact_rows: int = 5_000_000) -> None:
        super().__init__(loss_name=loss_name, exact_rows=exact_rows)
        self.clear()

    def clear(self) -> None:
        self._rows = _ScoredRows()
        self._histogram: Array = np.zeros((0, _BINS))

    def _add(self, rows: LabelledRows) -> None:
        self._include(_columns(rows, self.name))

    def _include(self, columns: State) -> None:
        self._rows.add(columns)
        if len(self._histogram) or self._rows.count > self._exact_rows:
            self._count()

    def _count(self) -> None:
        """Move the rows that were kept into the histogram."""
        if not len(self._histogram):
            self._histogram = np.zeros((2, _BINS))
        kept, self._rows = self._rows.columns(), _ScoredRows()
        bins = self._bins(kept["scores"])
        for label in (0, 1):
            rows = kept["positive"] == label
            self._histogram[label] += np.bincount(bins[rows], kept["weights"][rows], _BINS)

    def _bins(self, scores: Array) -> Array:
        # The bins are narrow for logits, where small probabilities differ most.
        logits = log_odds(scores) if self._loss_name == "bce_prob" else scores.astype(np.float64)
        size = np.log1p(np.minimum(np.abs(np.nan_to_num(logits)), _LARGEST) / _SMALLEST)
        position = np.copysign(size / np.log1p(_LARGEST / _SMALLEST), logits)
        bins = np.minimum((position + 1.0) * (_BINS // 2), _BINS - 1)
        return np.asarray(bins, dtype=np.int64)

    def state(self) -> State:
        return {**self._rows.columns(), "histogram": self._histogram.copy()}

    def add(self, state: State) -> None:
        self._include(state)
        if len(state["histogram"]):
            self._count()
            self._histogram += state["histogram"]

    def compute(self) -> float:
        if len(self._histogram):
            negative, positive = self._histogram
            start = np.zeros(1, dtype=np.int64)
        else:
            columns = self._rows.columns()
            start, positive, negative = _tied(columns, np.zeros(self._rows.count, dtype=np.int64))
        areas, _ = _areas(start, positive, negative)
        return float(areas[0]) if areas.size else float("nan")


@final
class GroupedAuc(Metric):
    """Mean of the AUCs within each group, weighted by the groups' weights.

    Groups with only one class are left out. Always exact: every row's score is kept (21 bytes).
    """

    name = "gauc"
    binary = True
    higher_is_better = True

    def __init__(self, *, loss_name: str | None = None, exact_rows: int = 5_000_000) -> None:
        super().__init__(loss_name=loss_name, exact_rows=exact_rows)
        self.clear()

    def clear(self) -> None:
        self._rows = _ScoredRows(grouped=True)

    def _add(self, rows: LabelledRows) -> None:
        if rows.group is None:
            raise ConfigError("metric 'gauc' needs group=: the column of the user or query")
        self._rows.add({**_columns(rows, self.name), "groups": group_ids(rows.group)})

    def state(self) -> State:
        return self._rows.columns()

    def add(self, state: State) -> None:
        self._rows.add(state)

    def compute(self) -> float:
        columns = self._rows.columns()
        areas, weights = _areas(*_tied(columns, columns["groups"]))
        defined = weights != 0
        return ratio((areas[defined] * weights[defined]).sum(), weights[defined].sum())


def _columns(rows: LabelledRows, metric: str) -> State:
    scores = rows.score(metric)
    # A NaN score has no rank; a NaN weight makes the result NaN instead of a wrong number.
    weights = np.where(np.isnan(scores), np.nan, rows.weight)
    return {"scores": scores, "positive": rows.label > 0.5, "weights": weights}


def group_ids(group: Array) -> Array:
    """Return groups as int64; names by a hash that is the same in every process."""
    if group.dtype.kind in "iub":
        return group.astype(np.int64)
    if group.dtype.kind == "f":
        return group.astype(np.float64).view(np.int64)
    names, index = np.unique(group.astype(str), return_inverse=True)
    digests = [hashlib.blake2b(name.encode(), digest_size=8).digest() for name in names]
    return np.frombuffer(b"".join(digests), dtype=np.int64)[index]


def _tied(columns: State, groups: Array) -> tuple[Array, Array, Array]:
    """Return weights of class 1 and 0 for each (group, score) in order, and starts of groups."""
    order = np.lexsort((columns["scores"], groups))
    groups, scores = groups[order], columns["scores"][order]
    new_group = changes(groups)
    starts = np.flatnonzero(new_group | changes(scores))
    weights, positive = columns["weights"][order], columns["positive"][order]
    if not starts.size:
        return starts, np.zeros(0), np.zeros(0)
    return (
        np.flatnonzero(new_group[starts]),
        np.add.reduceat(weights * positive, starts),
        np.add.reduceat(weights * ~positive, starts),
    )


def changes(values: Array) -> Array:
    """Return whether each value differs from the one before; true for the first."""
    changed = np.ones(len(values), dtype=bool)
    changed[1:] = values[1:] != values[:-1]
    return changed


def _areas(starts: Array, positive: Array, negative: Array) -> tuple[Array, Array]:
    """Return AUC and weight of each group in `starts`; NaN and 0 if it has only one class."""
    if not starts.size:
        return np.zeros(0), np.zeros(0)
    lengths = np.diff(starts, append=len(positive))
    before = np.cumsum(negative) - negative
    before -= np.repeat(before[starts], lengths)
    wins = np.add.reduceat(positive * (before + 0.5 * negative), starts)
    ones, zeros = np.add.reduceat(positive, starts), np.add.reduceat(negative, starts)
    pairs = ones * zeros
    areas = np.divide(wins, pairs, out=np.full_like(pairs, np.nan), where=pairs != 0)
    return areas, np.where(pairs != 0, ones + zeros, 0.0)
