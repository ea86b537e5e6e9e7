"""The training loop of one planned worker."""

import time
from collections.abc import Callable, Iterator
from typing import Any, Generic, Literal, TypeVar, final

import torch
from torch.optim import Optimizer

from flambeau.config import JobSettings
from flambeau.data.batch import Batch
from flambeau.data.loader import Loader, StepRows
from flambeau.errors import DataError
from flambeau.strategies.base import StepShare, Strategy
from flambeau.training.best import Best
from flambeau.training.milestones import Milestones
from flambeau.training.parts import TrainingParts
from flambeau.training.position import Position
from flambeau.training.pulse import Pulse

Item = TypeVar("Item")


@final
class Peeking(Iterator[Item], Generic[Item]):
    """Iterator over the items of another one that can look one item ahead."""

    def __init__(self, source: Iterator[Item]) -> None:
        self._source = source
        self._waiting: list[Item] = []

    def peek(self) -> Item | None:
        """Return the item that `next` will return, or None at the end."""
        if not self._waiting:
            self._waiting.extend(item for item in [next(self._source, None)] if item is not None)
        return self._waiting[0] if self._waiting else None

    def __next__(self) -> Item:
        return self._waiting.pop() if self._waiting else next(self._source)


Status = Literal["finished", "stopped"]


@final
class Trainer:
    """Trainer that runs epochs and steps, and decides after each step what is due.

    Every decision follows from numbers that all workers share, so all workers decide alike.
    """

    def __init__(
        self,
        settings: JobSettings,
        parts: TrainingParts,
        position: Position,
        best: Best | None,
        loader: Loader,
        pulse: Pulse,
        stop_requested: Callable[[], bool],
    ) -> None:
        self._settings, self._parts, self._loader = settings, parts, loader
        self._stop_requested = stop_requested
        self.position = position
        self.milestones = Milestones(settings, parts, position, best)
        self._pulse = pulse
        self.times = parts.times
        self._template: Batch | None = None
        self._stop = False
        self._beat_time = time.perf_counter()

    @property
    def strategy(self) -> Strategy:
        """This worker's strategy."""
        return self._parts.strategy

    @property
    def optimizers(self) -> dict[str, Optimizer]:
        """Dense optimizers by name."""
        return self._parts.optimizers

    @property
    def steps_total(self) -> int | None:
        """Number of steps of the whole training, None if it cannot be known."""
        return total_steps(self._settings, self._loader, self.position)

    def run(self) -> Status:
        """Train to the end, or until all agree to stop, and save the last state."""
        parts = self._parts
        parts.model.train()
        parts.view.step, parts.view.epoch = self.position.step, self.position.epoch
        if self.position.step:
            self.milestones.restored()
        # A run that ended by early stopping does not continue training when it is restarted.
        self._stop = self.milestones.finished_early
        parts.callbacks.on_start(parts.view)
        self._beat_time = time.perf_counter()
        while not self._over():
            self._epoch()
        stopped = self._stop and not self.milestones.finished_early
        if not stopped:
            self.milestones.evaluate()
        self.milestones.checkpoint()
        self._beat()
        parts.callbacks.on_end(parts.view)
        return "stopped" if stopped else "finished"

    def _over(self) -> bool:
        done = self.position.epoch >= self._settings.epochs
        limit = self._settings.max_steps
        # All stop at the same step: a worker that was left behind first catches up with it.
        stop = self._stop and not self._left_behind()
        return done or stop or (limit is not None and self.position.step >= limit)

    def _epoch(self) -> None:
        position = self.position
        self._announce("epoch_start", epoch=position.epoch)
        steps = self._loader.epoch(position.epoch, position.step_in_epoch, position.start_row)
        try:
            complete = self._steps(Peeking(steps))
        finally:
            steps.close()
        if complete:
            self._end_epoch()

    def _steps(self, steps: Peeking[StepRows]) -> bool:
        """Train on the steps of an epoch; return whether the epoch was completed."""
        started = time.perf_counter()
        while True:
            item = next(steps, None)
            rows, all_rows, left_out = self._agree_on_rows(item)
            if not all_rows:
                return True
            if self._left_behind():
                self._catch_up(all_rows, left_out)
            else:
                fetched = time.perf_counter()
                self.times.begin()
                batch = item.batch if item is not None else None
                if batch is not None:
                    self._look_ahead(batch, steps)
                loss = self._train(batch, rows, all_rows)
                now = time.perf_counter()
                self._pulse.add(loss, rows, now - started, fetched - started)
                self.times.end(now - started, fetched - started)
                started = now
                self.position.advance(all_rows + left_out, left_out)
                self._after_step(loss)
            self._meet_if_due()
            if self._over():
                return False

    def _left_behind(self) -> bool:
        """Return whether the others have made this step already, without this worker."""
        done = self._parts.strategy.steps_done
        return done is not None and done > self.position.step

    def _catch_up(self, all_rows: int, left_out: int) -> None:
        """Skip a step that was made without this worker."""
        parts, position = self._parts, self.position
        for schedule in parts.schedules.values():
            schedule.step()
        position.advance(all_rows + left_out, left_out)
        parts.view.step, parts.view.epoch = position.step, position.epoch

    def _look_ahead(self, batch: Batch, steps: Peeking[StepRows]) -> None:
        strategy = self._parts.strategy
        following = steps.peek() if strategy.looks_ahead else None
        strategy.look_ahead(batch, following.batch if following is not None else None)

    def _agree_on_rows(self, item: StepRows | None) -> tuple[int, int, int]:
        """Return the rows of this step on this worker and on all, and those that all leave out.

        All are 0 when the epoch is over.
        """
        batch = item.batch if item is not None else None
        rows, left_out = (batch.size, batch.left_out) if batch is not None else (0, 0)
        leaves_out = self._settings.loading.keep_negatives < 1.0
        if self._loader.steps() is not None and not (leaves_out and item is not None):
            return rows, (item.all_rows or 0) if item is not None else 0, 0
        total = self._parts.group.sum(torch.tensor([rows, left_out], dtype=torch.int64))
        return rows, int(total[0]), int(total[1])

    def _train(self, batch: Batch | None, rows: int, all_rows: int) -> float:
        parts = self._parts
        share = StepShare(rows, all_rows, self.position.step)
        if batch is None:
            loss = self._train_without_rows(share)
        else:
            batch = batch.to(parts.device)
            self._template = parts.view.batch = batch
            loss = parts.step(batch, parts.strategy.begin(share), self.position.step)
        for schedule in parts.schedules.values():
            schedule.step()
        return loss

    def _train_without_rows(self, share: StepShare) -> float:
        """Take part in a step without rows, or repeat the last batch with weight 0."""
        parts = self._parts
        if parts.strategy.sit_out(share):
            return 0.0
        if self._template is None:
            raise DataError(
                f"worker {parts.group.rank} has no rows at all; use fewer workers or more data"
            )
        buffers = [buffer.clone() for buffer in parts.model.buffers()]
        parts.strategy.weightless(True)
        parts.strategy.begin(share)
        parts.step(self._template, 0.0, self.position.step)
        parts.strategy.weightless(False)
        with torch.no_grad():
            for buffer, before in zip(parts.model.buffers(), buffers, strict=True):
                buffer.copy_(before)
        return 0.0

    def _after_step(self, loss: float) -> None:
        parts, position = self._parts, self.position
        view = parts.view
        view.step, view.epoch, view.loss = position.step, position.epoch, loss
        parts.callbacks.on_step_end(view)
        self._agree_on_stop()
        if self._pulse.due(position.step):
            self._beat()

    def _agree_on_stop(self) -> None:
        """Stop if a callback of any worker requests it; called wherever callbacks were."""
        agreed = self._pulse.stop_agreed(self._parts.view.stopping)
        # After the last step there is nothing to stop: the training is finished.
        ahead = self.steps_total is None or self.position.step < self.steps_total
        self._stop = self._stop or self._parts.strategy.stop or (agreed and ahead)

    def _meet_if_due(self) -> None:
        """Evaluate and save if due; the other workers wait for one that was left behind."""
        settings, step = self._settings, self.position.step
        if _due(settings.evaluation.every_steps, step):
            self._evaluate()
        if _due(settings.checkpoints.every_steps, step):
            self.milestones.checkpoint()

    def _end_epoch(self) -> None:
        parts, position, settings = self._parts, self.position, self._settings
        for schedule in parts.schedules.values():
            schedule.epoch_end()
        self._announce("epoch_end", epoch=position.epoch)
        position.next_epoch()
        parts.callbacks.on_epoch_end(parts.view)
        self._agree_on_stop()
        if self._over():
            return  # the end of the training evaluates and saves anyway
        if _due(settings.evaluation.every_epochs, position.epoch):
            self._evaluate()
        if _due(settings.checkpoints.every_epochs, position.epoch):
            self.milestones.checkpoint()

    def _evaluate(self) -> None:
        self.milestones.evaluate()
        self._agree_on_stop()
        self._stop = self._stop or self.milestones.finished_early

    def _beat(self) -> None:
        """Exchange sums with the other workers, and report progress."""
        parts = self._parts
        wants = self._stop_requested() or parts.view.stopping
        waiting = parts.strategy.communication_seconds()
        beat = self._pulse.agree(self.position.step, stop=wants, communication=waiting)
        self._stop = self._stop or beat.stop or parts.strategy.stop
        now = time.perf_counter()
        elapsed, self._beat_time = now - self._beat_time, now
        if beat.sums.rows and parts.group.first:
            optimizer = next(iter(parts.optimizers.values()))
            parts.report(
                "progress",
                step=self.position.step,
                epoch=self.position.epoch_of_last_step,
                steps_total=self.steps_total,
                rows=self.position.rows,
                lr=float(optimizer.param_groups[0]["lr"]),
                **beat.sums.progress(elapsed),
            )

    def _announce(self, kind: str, **fields: Any) -> None:
        if self._parts.group.first:
            self._parts.report(kind, **fields)


def total_steps(settings: JobSettings, loader: Loader, position: Position) -> int | None:
    """Return the steps of the whole training, done and to come; None if it is unknown."""
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
