"""Callbacks: the seam for everything else that happens during training."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer

from flambeau.data.batch import Batch


@dataclass
class TrainingView:
    """State of the training that callbacks see. Callbacks run on every worker."""

    model: nn.Module
    optimizers: Mapping[str, Optimizer]
    run_dir: Path
    rank: int
    workers: int
    log: Callable[[dict[str, float]], None]
    step: int = 0
    epoch: int = 0
    loss: float = float("nan")
    batch: Batch | None = None
    arguments: Callable[[Batch], tuple[list[Any], dict[str, Any]]] | None = None
    stopping: bool = False

    @property
    def first(self) -> bool:
        """Return whether this is the worker that should write, if only one should."""
        return self.rank == 0

    def stop(self) -> None:
        """End the training after this step, with a checkpoint. Any worker may call it.

        Asynchronous workers finish the batches that they have started.
        """
        self.stopping = True


class Callback:
    """Base class of callbacks. Override what you need; all methods get a `TrainingView`."""

    def on_start(self, view: TrainingView) -> None:
        """Run before the first step."""

    def on_step_end(self, view: TrainingView) -> None:
        """Run after each update."""

    def on_epoch_end(self, view: TrainingView) -> None:
        """Run after each epoch."""

    def on_evaluation(self, view: TrainingView, metrics: Mapping[str, float]) -> None:
        """Run after each evaluation by the workers."""

    def on_end(self, view: TrainingView) -> None:
        """Run after the last step, also if the training was stopped."""


class Callbacks(Callback):
    """Several callbacks, called in order."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self._callbacks = callbacks

    def on_start(self, view: TrainingView) -> None:
        """Call `on_start` of each callback."""
        for callback in self._callbacks:
            callback.on_start(view)

    def on_step_end(self, view: TrainingView) -> None:
        """Call `on_step_end` of each callback."""
        for callback in self._callbacks:
            callback.on_step_end(view)

    def on_epoch_end(self, view: TrainingView) -> None:
        """Call `on_epoch_end` of each callback."""
        for callback in self._callbacks:
            callback.on_epoch_end(view)

    def on_evaluation(self, view: TrainingView, metrics: Mapping[str, float]) -> None:
        """Call `on_evaluation` of each callback."""
        for callback in self._callbacks:
            callback.on_evaluation(view, metrics)

    def on_end(self, view: TrainingView) -> None:
        """Call `on_end` of each callback."""
        for callback in self._callbacks:
            callback.on_end(view)
