"""The training loop of one worker."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, final

import torch
from torch import nn
from torch.optim import Optimizer

from flambeau.config import JobSettings
from flambeau.data.batch import Batch
from flambeau.data.loader import Loader, StepRows
from flambeau.errors import DataError
from flambeau.strategies.base import Strategy
from flambeau.strategies.group import Group
from flambeau.training.best import Best
from flambeau.training.callbacks import Callback, TrainingView
from flambeau.training.evaluation import Scores
from flambeau.training.position import Position
from flambeau.training.pulse import Beat, Pulse
from flambeau.training.schedules import LearningRate
from flambeau.training.step import Step

Status = Literal["finished", "stopped"]


class Saving(Protocol):
    """What the loop asks of whoever writes checkpoints."""

    def save(self, metrics: dict[str, float], *, best: bool) -> None:
        """Begin to write a checkpoint of this moment. Called on every worker."""


@dataclass
class TrainingParts:
    """Everything the loop puts in motion; built by the worker role."""

    model: nn.Module
    optimizers: dict[str, Optimizer]
    schedules: dict[str, LearningRate]
    strategy: Strategy
    group: Group
    loader: Loader
    step: Step
    callbacks: Callback
    view: TrainingView
    evaluate: Callable[[], Scores] | None
    saving: Saving
    report: Callable[..., None]
    stop_requested: Callable[[], bool]
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))


@final
class Trainer:
    """Runs epochs and steps, and decides after each step what is due.

    Every decision follows from numbers that all workers share, so all take the same one.
    """

    def __init__(
        self, settings: JobSettings, parts: TrainingParts, position: Position, best: Best | None
    ) -> None:
        self._settings, self._parts = settings, parts
        self.position = position
        self.best = best
        stopping = settings.early_stopping
        self.patience = (
            Best(stopping.metric, stopping.mode, stopping.min_delta) if stopping else None
        )
        self.metrics: dict[str, float] = {}
        self.history: list[dict[str, Any]] = []
        self._pulse = Pulse(parts.group, position.step)
        self._template: Batch | None = None
        self._stop = False
        self._saved: tuple[int, bool] | None = None
        self._beat_time = time.perf_counter()

    @property
    def steps_total(self) -> int | None:
        """Steps of the whole training, where that can be known."""
        return total_steps(self._settings, self._parts.loader, self.position)

    def run(self) -> Status:
        """Train to the end, or until a stop is agreed on; the last state is saved."""
        parts = self._parts
        parts.model.train()
        parts.view.step, parts.view.epoch = self.position.step, self.position.epoch
        self._saved = self._state_to_save() if self.position.step else None
        # A run that early stopping had ended does not train on when it is started again.
        self._stop = self.finished_early
        parts.callbacks.on_start(parts.view)
        self._beat_time = time.perf_counter()
        while not self._over():
            self._epoch()
        stopped = self._stop and not self.finished_early
        if not stopped:
            self._evaluate()
        self._checkpoint()
        self._beat()
        parts.callbacks.on_end(parts.view)
        return "stopped" if stopped else "finished"

    def _over(self) -> bool:
        done = self.position.epoch >= self._settings.epochs
        limit = self._settings.max_steps
        return done or self._stop or (limit is not None and self.position.step >= limit)

    @property
    def finished_early(self) -> bool:
        """Whether the metric that early stopping watches has run out of patience."""
        patience = self._settings.early_stopping
        return (
            self.patience is not None
            and patience is not None
            and self.patience.stale >= patience.patience
        )

    def _epoch(self) -> None:
        parts, position = self._parts, self.position
        self._announce("epoch_start", epoch=position.epoch)
        steps = parts.loader.epoch(position.epoch, position.step_in_epoch, position.start_row)
        try:
            complete = self._steps(steps)
        finally:
            steps.close()
        if complete:
            self._end_epoch()

    def _steps(self, steps: Iterator[StepRows]) -> bool:
        """Train on the steps of an epoch; whether it came to its end."""
        started = time.perf_counter()
        while True:
            item = next(steps, None)
            rows, all_rows = self._agree_on_rows(item)
            if not all_rows:
                return True
            fetched = time.perf_counter()
            loss = self._train(item.batch if item is not None else None, rows, all_rows)
            now = time.perf_counter()
            self._pulse.add(loss, rows, now - started, fetched - started)
            started = now
            self.position.advance(all_rows)
            self._after_step(loss)
            if self._over():
                return False

    def _agree_on_rows(self, item: StepRows | None) -> tuple[int, int]:
        """The rows of this worker and of all in this step. All 0: the epoch is over."""
        rows = item.batch.size if item is not None and item.batch is not None else 0
        if self._parts.loader.steps() is not None:
            return rows, (item.all_rows or 0) if item is not None else 0
        total = self._parts.group.sum(torch.tensor([rows], dtype=torch.int64))
        return rows, int(total)

    def _train(self, batch: Batch | None, rows: int, all_rows: int) -> float:
        parts = self._parts
        if batch is None:
            loss = self._train_without_rows()
        else:
            batch = batch.to(parts.device)
            self._template = parts.view.batch = batch
            share = rows * parts.group.size / all_rows
            loss = parts.step(batch, share, self.position.step)
        for schedule in parts.schedules.values():
            schedule.step()
        return loss

    def _train_without_rows(self) -> float:
        """Take part in the exchange with the last batch once more, at weight 0."""
        parts = self._parts
        if self._template is None:
            raise DataError(
                f"worker {parts.group.rank} has no rows at all; use fewer workers or more data"
            )
        buffers = [buffer.clone() for buffer in parts.model.buffers()]
        parts.strategy.weightless(True)
        parts.step(self._template, 0.0, self.position.step)
        parts.strategy.weightless(False)
        with torch.no_grad():
            for buffer, before in zip(parts.model.buffers(), buffers, strict=True):
                buffer.copy_(before)
        return 0.0

    def _after_step(self, loss: float) -> None:
        parts, position, settings = self._parts, self.position, self._settings
        view = parts.view
        view.step, view.epoch, view.loss = position.step, position.epoch, loss
        parts.callbacks.on_step_end(view)
        if self._pulse.due(position.step):
            self._beat()
        if _due(settings.evaluation.every_steps, position.step):
            self._evaluate()
        if _due(settings.checkpoints.every_steps, position.step):
            self._checkpoint()

    def _end_epoch(self) -> None:
        parts, position, settings = self._parts, self.position, self._settings
        for schedule in parts.schedules.values():
            schedule.epoch_end()
        self._announce("epoch_end", epoch=position.epoch)
        position.next_epoch()
        parts.callbacks.on_epoch_end(parts.view)
        if self._over():
            return  # the end of the training evaluates and saves anyway
        if _due(settings.evaluation.every_epochs, position.epoch):
            self._evaluate()
        if _due(settings.checkpoints.every_epochs, position.epoch):
            self._checkpoint()

    def _beat(self) -> None:
        """Compare notes with the other workers, and tell the observers."""
        parts = self._parts
        wants = parts.stop_requested() or parts.view.stopping
        waiting = parts.strategy.communication_seconds()
        beat = self._pulse.agree(self.position.step, stop=wants, communication=waiting)
        self._stop = self._stop or beat.stop
        now = time.perf_counter()
        elapsed, self._beat_time = now - self._beat_time, now
        if beat.rows and parts.group.first:
            self._report_progress(beat, elapsed)

    def _report_progress(self, beat: Beat, elapsed: float) -> None:
        optimizer = next(iter(self._parts.optimizers.values()))
        busy = beat.step_seconds - beat.data_seconds - beat.communication_seconds
        self._parts.report(
            "progress",
            step=self.position.step,
            epoch=self.position.epoch,
            steps_total=self.steps_total,
            rows=self.position.rows,
            rows_per_second=beat.rows / max(elapsed, 1e-9),
            loss=beat.loss,
            lr=float(optimizer.param_groups[0]["lr"]),
            data_seconds=beat.data_seconds,
            compute_seconds=max(0.0, busy),
            communication_seconds=beat.communication_seconds,
        )

    def _is_evaluated(self) -> bool:
        """Whether this very step has been evaluated, perhaps before the run was resumed."""
        return bool(self.history) and self.history[-1]["step"] == self.position.step

    def _state_to_save(self) -> tuple[int, bool]:
        """What makes a checkpoint worth writing: a new step, or metrics of the same one."""
        return self.position.step, self._is_evaluated()

    def _evaluate(self) -> None:
        parts, step = self._parts, self.position.step
        if parts.evaluate is None or self._is_evaluated():
            return
        started = time.perf_counter()
        parts.strategy.synchronize()
        scores = parts.evaluate()
        self.metrics = scores.metrics
        epoch = self.position.epoch
        self.history.append({"step": step, "epoch": epoch, **scores.metrics})
        self._announce(
            "evaluation",
            step=step,
            epoch=epoch,
            metrics=scores.metrics,
            rows=scores.rows,
            seconds=time.perf_counter() - started,
        )
        parts.callbacks.on_evaluation(parts.view, scores.metrics)
        self._judge(scores.metrics)

    def _judge(self, metrics: dict[str, float]) -> None:
        if self.patience is not None:
            self.patience.improves(metrics)
            self._stop = self._stop or self.finished_early
        if self.best is not None and self.best.improves(metrics):
            self._checkpoint(best=True)

    def _checkpoint(self, *, best: bool = False) -> None:
        state = self._state_to_save()
        if self._saved == state and not best:
            return
        self._saved = state
        self._parts.strategy.synchronize()
        self._parts.saving.save(self.metrics if self._is_evaluated() else {}, best=best)

    def _announce(self, kind: str, **fields: Any) -> None:
        if self._parts.group.first:
            self._parts.report(kind, **fields)


def total_steps(settings: JobSettings, loader: Loader, position: Position) -> int | None:
    """Steps of the whole training, done and to come; None if only its end will tell."""
    whole = loader.steps()
    if whole is None:
        return settings.max_steps
    epochs_left = settings.epochs - position.epoch
    total = position.step
    if epochs_left > 0:
        current = loader.steps(position.start_row)
        assert current is not None
        total += current - position.step_in_epoch + whole * (epochs_left - 1)
    return min(total, settings.max_steps or total)


def _due(every: int | None, count: int) -> bool:
    return every is not None and count % every == 0
