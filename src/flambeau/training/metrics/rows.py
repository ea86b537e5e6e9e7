"""Model outputs and labels in the form that metrics use."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from flambeau.config.data import map_advice
from flambeau.config.plural import number_of
from flambeau.errors import DataError, ModelError

Array = np.ndarray[Any, Any]

#: The largest log-odds of a probability: it stays one float64 epsilon away from 0 and 1.
MAX_LOG_ODDS = float(np.log1p(-np.finfo(np.float64).eps) - np.log(np.finfo(np.float64).eps))

#: Losses whose model returns the predicted value itself, not a logit.
_VALUE_LOSSES = frozenset({"bce_prob", "mse", "mae", "huber"})


@final
@dataclass(frozen=True)
class LabelledRows:
    """Rows of a batch that have a label, in float64.

    `output` is [rows] (one value per row) or [rows, classes]; `label` and `weight` are [rows].
    `loss_name` defines what outputs mean: logits, unless the loss takes values or probabilities.
    """

    output: Array
    label: Array
    weight: Array
    group: Array | None
    loss_name: str | None

    def classes(self) -> int:
        """Return the number of classes; 2 for outputs of one value per row."""
        return 2 if self.output.ndim == 1 else int(self.output.shape[1])

    def score(self, metric: str) -> Array:
        """Return a number per row that grows with the chance of class 1; only for two classes."""
        if self.output.ndim == 1:
            return self.output
        if self.output.shape[1] != 2:
            raise ModelError(
                f"metric '{metric}' is for two classes; the model gives {self.output.shape[1]}: "
                "use 'accuracy', 'logloss' or 'f1'"
            )
        return np.asarray(self.output[:, 1] - self.output[:, 0])

    def log_odds(self, metric: str) -> Array:
        """Return the log-odds of class 1, as far as a float64 probability can express them."""
        score = self.score(metric)
        if self.gives_values():
            score = log_odds(score)
        return np.clip(score, -MAX_LOG_ODDS, MAX_LOG_ODDS)

    def require_binary(self, metric: str) -> None:
        """Raise `DataError` if labels of one-value outputs are not 0, 1 or between them."""
        bad = self.label[(self.label < 0.0) | (self.label > 1.0)]
        if self.output.ndim == 1 and bad.size:
            raise DataError(
                f"label {bad[0]:g} does not fit metric '{metric}': labels are 0 and 1, or between "
                f"them; {map_advice(float(bad[0]))}"
            )

    def predicted_class(self) -> Array:
        """Return the predicted class: [rows], int64."""
        if self.output.ndim == 2:
            return np.asarray(self.output.argmax(axis=1))
        threshold = 0.5 if self.gives_values() else 0.0
        return (self.output > threshold).astype(np.int64)

    def gives_values(self) -> bool:
        """Return whether one-value outputs are probabilities or values, not logits."""
        return self.output.ndim == 1 and self.loss_name in _VALUE_LOSSES


def sigmoid(logit: Array) -> Array:
    """Return probabilities from logits, without overflow."""
    return np.asarray(np.exp(-np.logaddexp(0.0, -logit)))


def log_odds(probability: Array) -> Array:
    """Return logits from probabilities, finite also for 0 and 1."""
    eps = np.finfo(np.float64).eps
    probability = np.clip(probability.astype(np.float64), eps, 1.0 - eps)
    return np.asarray(np.log(probability) - np.log1p(-probability))


def labelled_rows(
    output: Tensor,
    label: Tensor,
    weight: Tensor | None,
    group: Tensor | Array | None,
    loss_name: str | None,
) -> LabelledRows:
    """Return the rows whose label is not NaN; a row with several labels counts as several rows."""
    values, labels = _outputs(output, label), _numbers(label.reshape(-1))
    kept = ~np.isnan(labels)
    if values.ndim == 2:
        _check_classes(labels[kept], values.shape[1])
    repeat = labels.size // max(1, output.shape[0] if output.ndim else 1)
    weights = np.ones(labels.size) if weight is None else _repeated(_numbers(weight), repeat)
    groups = None if group is None else _repeated(_keys(group), repeat)[kept]
    return LabelledRows(values[kept], labels[kept], weights[kept], groups, loss_name)


def _outputs(output: Tensor, label: Tensor) -> Array:
    """Return outputs as [rows] or [rows, classes], for the flattened labels."""
    count = label.numel()
    if output.numel() == count:
        return _numbers(output.reshape(-1))
    if output.ndim >= 2 and output.numel() == count * output.shape[1]:
        return _numbers(output.movedim(1, -1).reshape(count, output.shape[1]))
    raise ModelError(
        f"metrics need one output per label, or [rows, classes] with labels of [rows]; the model "
        f"gave {list(output.shape)} for labels of {list(label.shape)}"
    )


def _check_classes(label: Array, classes: int) -> None:
    if label.size and not 0 <= label.min() <= label.max() < classes:
        bad = label.min() if label.min() < 0 else label.max()
        raise DataError(
            f"label {bad:g} is not one of the model's {number_of(classes, 'class', 'classes')}, "
            "which count from 0; map labels with label_map={label: class}"
        )


def _numbers(tensor: Tensor) -> Array:
    return tensor.detach().to("cpu", torch.float64).numpy()


def _keys(group: Tensor | Array) -> Array:
    return group.detach().cpu().numpy() if isinstance(group, Tensor) else group


def _repeated(values: Array, repeat: int) -> Array:
    flat = values.reshape(-1)
    return flat if repeat == 1 else np.repeat(flat, repeat)
