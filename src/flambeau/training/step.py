"""One training step: forward, loss, backward, update. The built-in one, and the user's own."""

import contextlib
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from flambeau.data.batch import Batch
from flambeau.data.binding import Binder, Label
from flambeau.errors import DataError, JobFailedError, ModelError
from flambeau.strategies.base import Strategy
from flambeau.training.losses import Loss
from flambeau.training.train_metrics import TrainMetrics


class Step(ABC):
    """Training on one batch."""

    @abstractmethod
    def __call__(self, batch: Batch, share: float, number: int) -> float:
        """Train on a batch whose gradient is scaled by `share`; return the mean loss, or NaN."""


@final
class StandardStep(Step):
    """Built-in step: forward, loss and backward (in `accumulate` parts), then update."""

    def __init__(
        self,
        forward: Callable[..., Any],
        binder: Binder,
        loss: Loss,
        strategy: Strategy,
        autocast: Callable[[], contextlib.AbstractContextManager[Any]],
        accumulate: int = 1,
        watched: TrainMetrics | None = None,
    ) -> None:
        self._forward, self._binder, self._loss = forward, binder, loss
        self._watched = watched
        self._strategy, self._autocast, self._accumulate = strategy, autocast, accumulate

    def __call__(self, batch: Batch, share: float, number: int) -> float:
        """Train on a batch; check the loss before it can make the weights NaN or infinite."""
        total = 0.0
        parts = self._parts(batch)
        for index, part in enumerate(parts):
            loss = self._compute(part)
            value = loss.item()
            if not math.isfinite(value):
                if self._strategy.skips_non_finite:
                    self._strategy.skip()
                    return math.nan
                raise not_finite(value, batch, number, self._binder.stacks)
            fraction = part.size / batch.size
            scale = share * fraction
            self._strategy.backward(
                loss if scale == 1.0 else loss * scale, last=index == len(parts) - 1
            )
            total += value * fraction
        self._strategy.update()
        return total

    def _compute(self, batch: Batch) -> Tensor:
        positional, named = self._binder.arguments(batch)
        with self._autocast():
            output = self._forward(*positional, **named)
            label, weight = self._binder.label(batch), self._binder.weight(batch)
            loss = self._loss(output, batch, label, weight)
        if self._watched is not None:
            group = self._binder.group(batch)
            self._watched.add(output, label, weight, group, loss.item(), batch.size)
        return loss

    def _parts(self, batch: Batch) -> list[Batch]:
        if self._accumulate == 1:
            return [batch]
        bounds = [round(i * batch.size / self._accumulate) for i in range(self._accumulate + 1)]
        cuts = itertools.pairwise(bounds)
        return [batch.slice(start, stop) for start, stop in cuts if start < stop]


@final
class StepContext:
    """Context of the user's own step: the model, its optimizers, and the strategy."""

    def __init__(
        self,
        model: nn.Module,
        optimizers: Mapping[str, Optimizer],
        binder: Binder,
        strategy: Strategy,
        log: Callable[[dict[str, float]], None],
        rank: int,
        workers: int,
    ) -> None:
        self.model, self.optimizers = model, optimizers
        self.rank, self.workers = rank, workers
        self.step = 0
        self._binder, self._strategy, self._log = binder, strategy, log
        self._share = 1.0
        self._batch: Batch | None = None

    def begin(self, batch: Batch, share: float, number: int) -> None:
        """Set the batch and its share, before each step."""
        self._batch, self._share, self.step = batch, share, number

    def forward(self, batch: Batch) -> Any:
        """Return the model's output for a batch, its columns bound as in the built-in step."""
        positional, named = self._binder.arguments(batch)
        return self.model(*positional, **named)

    def label(self, batch: Batch) -> Label:
        """Return the batch's label."""
        return self._binder.label(batch)

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of a mean loss, weighted by this worker's share of the rows."""
        value = loss.item()
        if not math.isfinite(value):
            assert self._batch is not None
            raise not_finite(value, self._batch, self.step, self._binder.stacks)
        self._strategy.backward(loss * self._share, last=True)

    def update(self, optimizer: str = "") -> None:
        """Agree on the gradients with all workers, apply them, and clear them."""
        self._strategy.update(optimizer)

    def zero_grad(self, optimizer: str = "") -> None:
        """Clear gradients that the loss of another network left."""
        self.optimizers[optimizer].zero_grad(set_to_none=True)

    def log(self, **values: float) -> None:
        """Write scalars to the events and to TensorBoard."""
        self._log({name: float(value) for name, value in values.items()})


@final
class OwnStep(Step):
    """Step that calls the user's `f(ctx, batch)`; its result, if any, is shown as the loss."""

    def __init__(self, function: Callable[[StepContext, Batch], Any], context: StepContext) -> None:
        self._function, self._context = function, context

    def __call__(self, batch: Batch, share: float, number: int) -> float:
        """Call the user's step for a batch; return its loss, or NaN if it returns none."""
        self._context.begin(batch, share, number)
        result = self._function(self._context, batch)
        if result is None:
            return math.nan
        if isinstance(result, Tensor):
            return float(result.detach())
        if isinstance(result, int | float):
            return float(result)
        raise ModelError(
            f"step= returned {type(result).__name__}; return the loss to be shown, or nothing"
        )


def not_finite(
    value: float, batch: Batch, step: int, stacks: Mapping[str, Sequence[str]]
) -> Exception:
    """Return an error that names where a loss became infinite or NaN, and the column at fault.

    `stacks` are the columns that make up each input of the model.
    """
    where = f"the loss is {value} at step {step} of epoch {batch.epoch}"
    for name, column in batch.columns.items():
        if isinstance(column, Tensor) and column.is_floating_point():
            bad = ~torch.isfinite(column).reshape(batch.size, -1).all(dim=1)
            if bool(bad.any()):
                row = int(bad.nonzero()[0])
                places = torch.isfinite(column[row]).logical_not().flatten().nonzero().flatten()
                which = f", places {places.tolist()}" if column.dim() > 1 else ""
                members = stacks.get(name, ())
                if column.dim() == 2 and len(members) == column.shape[1]:
                    name, which = members[int(places[0])], ""
                return DataError(
                    f"{where}: column '{name}' is not finite in row {row} of the batch{which}; "
                    f"fill in what is missing, in the data or with fill={{'{name}': 0.0}}"
                )
    return JobFailedError(
        f"{where}; the data is finite, so the training diverged: lower the learning rate, or "
        "set clip_norm"
    )
