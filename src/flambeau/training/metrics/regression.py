"""Metrics of the distance between predicted values and labels."""

from collections.abc import Sequence
from typing import final

import numpy as np

from flambeau.errors import ModelError
from flambeau.training.metrics.base import SumMetric, ratio
from flambeau.training.metrics.rows import Array, LabelledRows, sigmoid


@final
class Rmse(SumMetric):
    """Root of the mean squared difference."""

    name = "rmse"
    higher_is_better = False

    def _terms(self, rows: LabelledRows) -> Sequence[Array]:
        return rows.weight * _differences(rows, self.name) ** 2, rows.weight

    def _value(self, sums: Array) -> float:
        return float(np.sqrt(ratio(*sums)))


@final
class Mse(SumMetric):
    """Mean squared difference."""

    name = "mse"
    higher_is_better = False

    def _terms(self, rows: LabelledRows) -> Sequence[Array]:
        return rows.weight * _differences(rows, self.name) ** 2, rows.weight

    def _value(self, sums: Array) -> float:
        return ratio(*sums)


@final
class Mae(SumMetric):
    """Mean absolute difference."""

    name = "mae"
    higher_is_better = False

    def _terms(self, rows: LabelledRows) -> Sequence[Array]:
        return rows.weight * np.abs(_differences(rows, self.name)), rows.weight

    def _value(self, sums: Array) -> float:
        return ratio(*sums)


def _differences(rows: LabelledRows, metric: str) -> Array:
    """Return prediction minus label; with the loss 'bce' the prediction is the probability."""
    if rows.output.ndim != 1:
        raise ModelError(
            f"metric '{metric}' needs one output per label; the model gives "
            f"{rows.output.shape[1]} for each"
        )
    prediction = sigmoid(rows.output) if rows.loss_name == "bce" else rows.output
    return np.asarray(prediction - rows.label)
