"""Metrics of the rows trained on, from the outputs that training computes anyway."""

from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor

from flambeau.data.binding import GroupColumn, Label
from flambeau.strategies.group import Group
from flambeau.training.losses import Loss
from flambeau.training.metric_set import MetricSet

PREFIX = "train/"


@final
class TrainMetrics:
    """Loss and metrics of training outputs, from one call of `results` to the next.

    Rows that a lost worker had counted are missing.
    """

    def __init__(self, names: Sequence[str], loss: Loss | None, exact_rows: int) -> None:
        self._names, self._loss = names, loss
        self.limit(exact_rows)

    def limit(self, exact_rows: int) -> None:
        """Reset, with AUC exact up to `exact_rows` rows."""
        self._exact_rows = exact_rows
        self._metrics = MetricSet(self._names, self._loss, exact_rows)
        self._totals = torch.zeros(2, dtype=torch.float64)

    def add(
        self,
        output: Any,
        label: Label,
        weight: Tensor | None,
        group: GroupColumn | None,
        loss: float,
        rows: int,
    ) -> None:
        """Add a batch."""
        self._totals += torch.tensor([loss * rows, rows], dtype=torch.float64)
        self._metrics.update(_detached(output), label, weight, group)

    def results(self, group: Group) -> dict[str, float]:
        """Return the values over all workers by name, with a prefix; empty without rows."""
        loss, rows = group.sum(self._totals).tolist()
        values = self._metrics.results(group)
        self.limit(self._exact_rows)
        if not rows:
            return {}
        return {
            f"{PREFIX}{name}": value for name, value in ({"loss": loss / rows} | values).items()
        }


def _detached(output: Any) -> Any:
    if isinstance(output, Tensor):
        return output.detach()
    if isinstance(output, dict):
        return {name: _detached(part) for name, part in output.items()}
    return [_detached(part) for part in output] if isinstance(output, tuple | list) else output
