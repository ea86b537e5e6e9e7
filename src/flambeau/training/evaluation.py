"""Evaluation of a model on the validation data of all workers."""

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from flambeau.data.batch import Batch
from flambeau.data.binding import Binder
from flambeau.errors import DataError
from flambeau.strategies.group import Group
from flambeau.training.losses import Loss
from flambeau.training.metric_set import MetricSet

CPU = torch.device("cpu")

Autocast = Callable[[], contextlib.AbstractContextManager[Any]]


@dataclass(frozen=True)
class Scores:
    """Result of an evaluation: metrics by name (with the loss), and the number of rows."""

    metrics: dict[str, float]
    rows: int


def evaluate(
    model: nn.Module,
    batches: Iterable[Batch],
    binder: Binder,
    loss: Loss | None,
    metrics: MetricSet,
    group: Group,
    autocast: Autocast = contextlib.nullcontext,
    device: torch.device = CPU,
) -> Scores:
    """Return metrics over the rows of all workers; the model's training mode does not change."""
    totals = accumulate(model, batches, binder, loss, metrics, autocast, device)
    loss_sum, rows = group.sum(totals).tolist()
    return scores(loss_sum if loss else None, int(rows), metrics.results(group))


def scores(loss_sum: float | None, rows: int, metrics: dict[str, float]) -> Scores:
    """Return the result of an evaluation from its sums. `loss_sum` is None without a loss."""
    if not rows:
        raise DataError("the validation data has no rows")
    values = {} if loss_sum is None else {"loss": loss_sum / rows}
    return Scores({**values, **metrics}, rows)


def accumulate(
    model: nn.Module,
    batches: Iterable[Batch],
    binder: Binder,
    loss: Loss | None,
    metrics: MetricSet,
    autocast: Autocast = contextlib.nullcontext,
    device: torch.device = CPU,
) -> torch.Tensor:
    """Add batches to `metrics`; return the sum of loss x rows and the rows (float64 [2])."""
    training = model.training
    model.eval()
    totals = torch.zeros(2, dtype=torch.float64)
    try:
        with torch.inference_mode():
            for batch in batches:
                batch = batch.to(device)
                positional, named = binder.arguments(batch)
                label, weight = binder.label(batch), binder.weight(batch)
                with autocast():
                    output = model(*positional, **named)
                    value = loss(output, batch, label, weight) if loss else torch.tensor(0.0)
                totals += torch.tensor([value.item() * batch.size, batch.size], dtype=totals.dtype)
                metrics.update(output, label, weight, binder.group(batch))
    finally:
        model.train(training)
    return totals
