"""The training loop of an asynchronous worker."""

import math
import time
from collections.abc import Callable
from typing import Any, final

from flambeau.config import JobSettings
from flambeau.coordination.task_messages import SyncPoint
from flambeau.strategies.base import StepShare, Strategy
from flambeau.training.best import Best
from flambeau.training.loop import Status
from flambeau.training.milestones import Milestones
from flambeau.training.parts import TrainingParts
from flambeau.training.position import Position
from flambeau.training.task_feed import BatchReport, TaskBatch, TaskFeed


@final
class AsyncTrainer:
    """Trainer that runs the tasks it receives, and waits for the other workers at sync points."""

    def __init__(
        self,
        settings: JobSettings,
        parts: TrainingParts,
        position: Position,
        best: Best | None,
        feed: TaskFeed,
        request_stop: Callable[[], None],
    ) -> None:
        self._parts, self._feed, self._request_stop = parts, feed, request_stop
        self.position = position
        self.milestones = Milestones(settings, parts, position, best)
        #: Called with each sync point, before its evaluation and checkpoint.
        self.on_sync_point: Callable[[SyncPoint], None] = lambda sync_point: None
        self.times = parts.times
        self._asked: float = 0.0
        self._wants_stop = False
        self._updates = position.step
        self._informed = False

    @property
    def strategy(self) -> Strategy:
        """This worker's strategy."""
        return self._parts.strategy

    def run(self) -> Status:
        """Train until the last sync point; return how training ended."""
        parts = self._parts
        parts.model.train()
        parts.view.step, parts.view.epoch = self.position.step, self.position.epoch
        parts.callbacks.on_start(parts.view)
        while True:
            self._asked = time.perf_counter()
            item = self._feed.next()
            if isinstance(item, TaskBatch):
                self._train(item)
            elif self._meet(item):
                break
        parts.callbacks.on_end(parts.view)
        return "stopped" if item.stops and not self.milestones.finished_early else "finished"

    def _train(self, item: TaskBatch) -> None:
        parts = self._parts
        fetched = time.perf_counter()
        self.times.begin()
        self._inform(item.progress)
        if item.joins:
            parts.strategy.catch_up()
        batch = item.batch.to(parts.device)
        upcoming = self._feed.upcoming() if parts.strategy.looks_ahead else None
        parts.strategy.look_ahead(item.batch, upcoming.batch if upcoming is not None else None)
        share = StepShare(batch.size, batch.size, item.number, item.epoch, item.task)
        parts.view.batch = batch
        loss = parts.step(batch, parts.strategy.begin(share), self.position.step)
        self._move_schedules(item)
        self.times.end(time.perf_counter() - self._asked, fetched - self._asked)
        self.position.advance(batch.size)
        parts.view.step, parts.view.epoch, parts.view.loss = self.position.step, item.epoch, loss
        parts.callbacks.on_step_end(parts.view)
        self._feed.trained(self._report(item, loss, fetched))
        if parts.view.stopping and not self._wants_stop:
            self._wants_stop = True
            self._request_stop()
            self._feed.stop()

    def _inform(self, progress: dict[str, Any]) -> None:
        """Load the other workers' progress, unless a sync point did so before."""
        if not self._informed and progress:
            self.milestones.load(progress)
        self._informed = True

    def _move_schedules(self, item: TaskBatch) -> None:
        """Advance schedules by the estimated updates of all workers since the last call."""
        before = self._updates
        # All workers together make this many updates while this one makes one.
        self._updates = max(before, item.updates) + self._parts.group.size
        for schedule in self._parts.schedules.values():
            for _ in range(self._updates - before):
                schedule.step()

    def _report(self, item: TaskBatch, loss: float, fetched: float) -> BatchReport:
        optimizer = next(iter(self._parts.optimizers.values()))
        return BatchReport(
            item,
            loss if math.isfinite(loss) else math.nan,
            time.perf_counter() - self._asked,
            fetched - self._asked,
            self._parts.strategy.communication_seconds(),
            float(optimizer.param_groups[0]["lr"]),
            self._parts.strategy.skipped,
        )

    def _meet(self, sync_point: SyncPoint) -> bool:
        """Evaluate and save with all workers; return whether it was the last sync point."""
        parts, position = self._parts, self.position
        self._informed = True
        if sync_point.progress:
            self.milestones.load(sync_point.progress)
        position.step = parts.view.step = sync_point.step
        while position.epoch < sync_point.epoch:
            position.next_epoch()
            for schedule in parts.schedules.values():
                schedule.epoch_end()
            parts.callbacks.on_epoch_end(parts.view)
        self.on_sync_point(sync_point)
        parts.view.epoch = position.epoch
        parts.strategy.synchronize()
        if sync_point.evaluate:
            self.milestones.evaluate()
        if sync_point.save:
            self.milestones.checkpoint()
        stop = self.milestones.finished_early or parts.view.stopping
        self._feed.met(sync_point, stop=stop, progress=self.milestones.dump())
        return sync_point.last
