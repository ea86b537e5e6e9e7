"""A trainer with all its parts in memory, for the tests of the loop."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import SGD

from flambeau.config import AllReduce, Binding, CodeRef, FileData, JobSettings, Loading
from flambeau.coordination.plans import IndexedPlan
from flambeau.data.batch import Batch
from flambeau.data.binding import Binder, Shape
from flambeau.data.loader import IndexedLoader, Loader, StepRows
from flambeau.data.source import IndexedSource
from flambeau.strategies.all_reduce import AllReduceStrategy
from flambeau.strategies.base import Clipping, Strategy
from flambeau.strategies.group import Solo
from flambeau.training.best import Best
from flambeau.training.callbacks import Callback, TrainingView
from flambeau.training.evaluation import Scores
from flambeau.training.loop import Trainer
from flambeau.training.losses import build_loss
from flambeau.training.parts import TrainingParts
from flambeau.training.position import Position
from flambeau.training.pulse import CollectivePulse
from flambeau.training.schedules import LearningRate
from flambeau.training.step import StandardStep
from flambeau.training.step_times import StepTimes

ROWS, BATCH = 10, 4  # three steps an epoch
SHAPE = Shape(("x", "y"))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.norm = nn.BatchNorm1d(1)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.unsqueeze(1)).squeeze(1) * self.weight


class Rows(IndexedSource):
    columns = SHAPE.columns

    def __init__(self, x: Tensor) -> None:
        self._x = x

    def __len__(self) -> int:
        return len(self._x)

    def take(self, rows: np.ndarray, columns: Sequence[str] | None = None) -> Batch:
        x = self._x[torch.from_numpy(rows)]
        return Batch({"x": x, "y": 3 * x.nan_to_num()}, len(rows))


class Given(Loader):
    """An epoch of given steps, whose number is known or not."""

    def __init__(self, steps: list[StepRows], *, known: bool) -> None:
        super().__init__(Binder(Binding(label="y"), Model().forward, SHAPE), None, 2)
        self._given, self._known = steps, known

    def steps(self, start: int = 0) -> int | None:
        return len(self._given) if self._known else None

    def _read(self, epoch: int, first: int, start: int) -> Iterator[StepRows]:
        return iter(self._given[first:])


class Saves:
    """Remembers what was to be saved, and when."""

    def __init__(self) -> None:
        self.trainer: Trainer | None = None
        self.made: list[tuple[int, dict[str, float], bool]] = []

    def save(self, metrics: dict[str, float], *, best: bool) -> None:
        assert self.trainer is not None
        self.made.append((self.trainer.position.step, metrics, best))

    @property
    def steps(self) -> list[int]:
        return [step for step, _, _ in self.made]


class Calls(Callback):
    """Remembers which methods were called at which step."""

    def __init__(self) -> None:
        self.made: list[tuple[str, int]] = []

    def on_start(self, view: TrainingView) -> None:
        self.made.append(("start", view.step))

    def on_step_end(self, view: TrainingView) -> None:
        self.made.append(("step", view.step))

    def on_epoch_end(self, view: TrainingView) -> None:
        self.made.append(("epoch", view.step))

    def on_end(self, view: TrainingView) -> None:
        self.made.append(("end", view.step))


class StopAt(Callback):
    def __init__(self, step: int) -> None:
        self._step = step

    def on_step_end(self, view: TrainingView) -> None:
        if view.step == self._step:
            view.stop()


class Training:
    """A trainer with all its parts in memory."""

    def __init__(
        self,
        *,
        scores: list[float] | None = None,
        callback: Callback | None = None,
        position: Position | None = None,
        loader: Loader | None = None,
        stop: Callable[[], bool] = lambda: False,
        x: Tensor | None = None,
        lr: float = 0.1,
        strategy: Strategy | None = None,
        schedules: Mapping[str, LearningRate] | None = None,
        **settings: Any,
    ) -> None:
        self.model, self.saves = Model(), Saves()
        position = position or Position()
        self.events: list[tuple[str, dict[str, Any]]] = []
        self._scores = scores
        self.evaluated: list[int] = []
        valid = FileData(path="valid") if scores is not None else None
        job = JobSettings(
            model=CodeRef(path="m:Model"), train=FileData(path="x"), valid=valid, **settings
        )
        optimizers = {"": SGD(self.model.parameters(), lr=lr)}
        strategy = strategy or AllReduceStrategy(AllReduce(), Solo(), Clipping())
        strategy.attach(self.model, optimizers, own_step=False)
        binder = Binder(Binding(label="y"), self.model.forward, SHAPE)
        source = Rows(torch.linspace(-1, 1, ROWS) if x is None else x)
        plan = IndexedPlan(len(source), BATCH, 1, seed=0)
        self.view = TrainingView(self.model, optimizers, Path(), 0, 1, log=lambda values: None)
        step = StandardStep(self.model, binder, build_loss("mse"), strategy, contextlib.nullcontext)
        parts = TrainingParts(
            model=self.model,
            optimizers=optimizers,
            schedules=dict(schedules or {}),
            strategy=strategy,
            group=Solo(),
            step=step,
            callbacks=callback or Callback(),
            view=self.view,
            evaluate=self._evaluate if scores is not None else None,
            saving=self.saves,
            report=lambda kind, **fields: self.events.append((kind, fields)),
            times=StepTimes(strategy.table_seconds),
        )
        best = Best(job.checkpoints.best, job.checkpoints.mode) if scores is not None else None
        loader = loader or IndexedLoader(source, plan, 0, binder, None, Loading(), 0)
        pulse = CollectivePulse(Solo(), position.step, callbacks=callback is not None)
        self.trainer = self.saves.trainer = Trainer(job, parts, position, best, loader, pulse, stop)

    def _evaluate(self) -> Scores:
        assert self._scores is not None
        self.evaluated.append(self.trainer.position.step)
        return Scores({"loss": self._scores[len(self.evaluated) - 1]}, rows=5)

    def run(self) -> str:
        return self.trainer.run()

    def kinds(self, *wanted: str) -> list[str]:
        return [kind for kind, _ in self.events if kind in wanted]


def some_batch() -> Batch:
    x = torch.linspace(-1, 1, BATCH)
    return Batch({"x": x, "y": 3 * x}, BATCH)
