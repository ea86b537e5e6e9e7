"""Metrics of predicted probabilities."""

from collections.abc import Sequence
from typing import final

import numpy as np

from flambeau.training.metrics.base import SumMetric, ratio
from flambeau.training.metrics.rows import MAX_LOG_ODDS, Array, LabelledRows, sigmoid

#: Losses of values that are not probabilities, whose labels may be any numbers.
_VALUES = ("mse", "mae", "huber")


@final
class LogLoss(SumMetric):
    """Mean negative log-likelihood; probabilities stay one float64 epsilon away from 0 and 1."""

    name = "logloss"
    binary = True
    higher_is_better = False

    def _terms(self, rows: LabelledRows) -> Sequence[Array]:
        losses = _binary_losses(rows, self.name) if rows.output.ndim == 1 else _class_losses(rows)
        return rows.weight * losses, rows.weight

    def _value(self, sums: Array) -> float:
        return ratio(*sums)


@final
class NormalizedEntropy(SumMetric):
    """Log loss divided by that of always predicting the mean label; useful models are below 1."""

    name = "normalized_entropy"
    binary = True
    higher_is_better = False

    def _terms(self, rows: LabelledRows) -> Sequence[Array]:
        losses = _binary_losses(rows, self.name)
        return rows.weight * losses, rows.weight * rows.label, rows.weight

    def _value(self, sums: Array) -> float:
        losses, positive, total = sums
        rate = ratio(positive, total)
        if not 0.0 < rate < 1.0:
            return float("nan")
        entropy = -(rate * np.log(rate) + (1.0 - rate) * np.log1p(-rate))
        return ratio(losses, total * entropy)


@final
class Calibration(SumMetric):
    """Mean prediction divided by the mean label; 1 is ideal."""

    name = "calibration"
    higher_is_better = False

    def _terms(self, rows: LabelledRows) -> Sequence[Array]:
        if rows.loss_name not in _VALUES:
            rows.require_binary(self.name)
        score = rows.score(self.name)
        prediction = score if rows.gives_values() else sigmoid(score)
        return rows.weight * prediction, rows.weight * rows.label

    def _value(self, sums: Array) -> float:
        return ratio(*sums)


def _binary_losses(rows: LabelledRows, metric: str) -> Array:
    logit = rows.log_odds(metric)
    positive, negative = np.logaddexp(0.0, -logit), np.logaddexp(0.0, logit)
    return np.asarray(rows.label * positive + (1.0 - rows.label) * negative)


def _class_losses(rows: LabelledRows) -> Array:
    # Outputs for the loss 'nll' need no special case: softmax leaves log-probabilities unchanged.
    shifted = rows.output - rows.output.max(axis=1, keepdims=True)
    chosen = np.take_along_axis(shifted, rows.label.astype(np.int64)[:, None], axis=1)[:, 0]
    losses = np.log(np.exp(shifted).sum(axis=1)) - chosen
    return np.asarray(np.minimum(losses, MAX_LOG_ODDS))
