"""Metrics that count correct and wrong predictions."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import final

import numpy as np
import torch

from flambeau.errors import ModelError
from flambeau.training.metrics.base import SumMetric, ratio
from flambeau.training.metrics.rows import Array, LabelledRows


@final
class Accuracy(SumMetric):
    """Share of rows whose predicted class is the label."""

    name = "accuracy"
    binary = True
    higher_is_better = True

    def _terms(self, rows: LabelledRows) -> Sequence[Array]:
        return rows.weight * (rows.predicted_class() == rows.label), rows.weight

    def _value(self, sums: Array) -> float:
        return ratio(*sums)


@final
class Top5(SumMetric):
    """Share of rows whose label is among the five classes with the highest outputs."""

    name = "top5"
    higher_is_better = True

    def _terms(self, rows: LabelledRows) -> Sequence[Array]:
        if rows.output.ndim == 1:
            raise ModelError("metric 'top5' needs outputs of [rows, classes]; use 'accuracy'")
        output = torch.from_numpy(rows.output)
        top = output.topk(min(5, rows.classes()), dim=1).indices.numpy()
        return rows.weight * (top == rows.label[:, None]).any(axis=1), rows.weight

    def _value(self, sums: Array) -> float:
        return ratio(*sums)


class _Confusion(SumMetric):
    """Metric of counts per class: correctly predicted, predicted, and actual.

    With two classes the value is that of class 1; with more, it is the mean over the classes that
    were predicted or occur.
    """

    higher_is_better = True
    binary = True

    def _terms(self, rows: LabelledRows) -> Sequence[Array]:
        classes = np.arange(rows.classes())
        predicted = rows.predicted_class()[:, None] == classes
        actual = rows.label[:, None] == classes
        weight = rows.weight[:, None]
        return weight * (predicted & actual), weight * predicted, weight * actual

    def _value(self, sums: Array) -> float:
        values = self._per_class(*sums)
        if values.size == 2:
            return float(values[1])
        seen = (sums[1] + sums[2]) > 0
        return float(values[seen].mean()) if seen.any() else float("nan")

    @abstractmethod
    def _per_class(self, right: Array, predicted: Array, actual: Array) -> Array:
        """Return the value of each class from its three counts."""


@final
class Precision(_Confusion):
    """Share of predictions of a class that are correct; 0 for a class never predicted."""

    name = "precision"

    def _per_class(self, right: Array, predicted: Array, actual: Array) -> Array:
        return _shares(right, predicted)


@final
class Recall(_Confusion):
    """Share of the rows of a class that are found; 0 for a class that does not occur."""

    name = "recall"

    def _per_class(self, right: Array, predicted: Array, actual: Array) -> Array:
        return _shares(right, actual)


@final
class F1(_Confusion):
    """Harmonic mean of precision and recall."""

    name = "f1"

    def _per_class(self, right: Array, predicted: Array, actual: Array) -> Array:
        return _shares(2.0 * right, predicted + actual)


def _shares(part: Array, whole: Array) -> Array:
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
