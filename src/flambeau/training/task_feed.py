"""Tasks of an asynchronous worker: requested, read ahead, reported; and its sync points."""

import math
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

from flambeau.coordination.activity import waits_for_others
from flambeau.coordination.consistency import StalenessPolicy
from flambeau.coordination.coordinator_client import CoordinatorClient
from flambeau.coordination.task_messages import (
    Assigned,
    SlowestClock,
    StepGrant,
    SyncPoint,
    SyncPointDone,
    TaskRequest,
    Trained,
)
from flambeau.data.batch import Batch
from flambeau.data.task_reader import TaskReader
from flambeau.strategies.coordinator_group import CoordinatorGroup

#: Reports of batches are collected for this long, unless another worker may wait for them.
REPORT_SECONDS = 0.25


@dataclass(frozen=True)
class TaskBatch:
    """Batch `number` of a task; `last` marks the last one of the task.

    `updates` is how many updates all workers had made when the task was handed out. `joins`: the
    worker had been idle before. `progress`: the state of the other workers, if this one is new.
    """

    epoch: int
    task: int
    number: int
    batch: Batch
    last: bool
    updates: int = 0
    joins: bool = False
    progress: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class BatchReport:
    """Report of a batch that was trained; times in seconds."""

    item: TaskBatch
    loss: float
    seconds: float
    data_seconds: float
    waiting_seconds: float
    lr: float
    dropped: bool = False


@final
class TaskFeed:
    """Work from the coordinator, over the worker's link. A thread reads ahead.

    With `limited`, each step needs a step grant.
    """

    def __init__(
        self,
        coordinator: CoordinatorClient,
        group: CoordinatorGroup,
        reader: TaskReader,
        policy: StalenessPolicy,
        read_ahead: int,
        *,
        limited: bool = False,
    ) -> None:
        self._coordinator, self._group = coordinator, group
        self._reader, self._policy = reader, policy
        self._depth = read_ahead
        self._changed = threading.Condition()
        self._tasks: deque[Assigned] = deque()
        self._batches: deque[TaskBatch] = deque()
        self._sync_point: SyncPoint | None = None
        self._clock = self._slowest_clock = 0
        self._joins = False
        self._granted: float = 0 if limited else math.inf
        self._error: BaseException | None = None
        self._closed = self._stopping = False
        self._unsent: list[BatchReport] = []
        self._sent = time.perf_counter()
        coordinator.on(Assigned, self._on_assigned)
        coordinator.on(StepGrant, self._on_granted)
        coordinator.on(SlowestClock, self._on_slowest_clock)
        coordinator.on(SyncPoint, self._on_sync_point)
        self._thread = threading.Thread(target=self._read, name="flambeau-tasks", daemon=True)
        self._thread.start()

    # Called by the training loop

    @waits_for_others
    def next(self) -> TaskBatch | SyncPoint:
        """Wait for the next batch or sync point, and return it."""
        with self._changed:
            while True:
                if self._error is not None:
                    raise self._error
                if self._sync_point is not None:
                    sync_point, self._sync_point = self._sync_point, None
                    break
                if self._may_start():
                    self._granted -= 1
                    item = self._batches.popleft()
                    if self._joins:
                        item, self._joins = replace(item, joins=True), False
                    self._changed.notify_all()
                    return item
                if self._unsent:
                    # Another worker may be waiting for batches that are not reported yet.
                    break_out = self._granted > 0 and self._changed.wait(REPORT_SECONDS)
                    if not break_out:
                        self._send()
                else:
                    self._changed.wait()
        self._send()
        self._group.enter(sync_point.number, sync_point.ranks)
        return sync_point

    def _may_start(self) -> bool:
        in_time = self._policy.may_start(self._clock, self._slowest_clock)
        return bool(self._batches) and self._granted > 0 and in_time and not self._stopping

    def upcoming(self) -> TaskBatch | None:
        """Return the batch that `next` will return, if it has been read already."""
        with self._changed:
            return self._batches[0] if self._batches else None

    def stop(self) -> None:
        """Return no further batch; `next` waits for the sync point that ends the training."""
        self._stopping = True
        self._send()

    def trained(self, report: BatchReport) -> None:
        """Report a batch whose gradient is on its way to the servers."""
        self._clock += 1
        self._unsent.append(report)
        waited = time.perf_counter() - self._sent > REPORT_SECONDS
        # When staleness is bounded, others wait for our clock.
        if waited or report.item.last or not self._policy.may_start(1 << 30, 0):
            self._send()

    def met(self, sync_point: SyncPoint, *, stop: bool, progress: dict[str, Any]) -> None:
        """Report that this worker has completed a sync point."""
        self._coordinator.send(
            SyncPointDone(self._coordinator.spec, sync_point.number, stop, progress)
        )

    def close(self) -> None:
        """End the reading thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(timeout=30)

    def _send(self) -> None:
        reports, self._unsent = self._unsent, []
        self._sent = time.perf_counter()
        for run in _runs(reports):
            first, last = run[0], run[-1]
            self._coordinator.send(
                Trained(
                    self._coordinator.spec,
                    first.item.task,
                    first.item.epoch,
                    [(report.item.number, report.item.batch.size) for report in run],
                    sum(r.loss * r.item.batch.size for r in run if not math.isnan(r.loss)),
                    sum(r.seconds for r in run),
                    sum(r.data_seconds for r in run),
                    sum(r.waiting_seconds for r in run),
                    last.lr,
                    last.item.last,
                    [report.item.number for report in run if report.dropped],
                    {r.item.number: r.item.batch.left_out for r in run if r.item.batch.left_out},
                )
            )

    # Messages of the coordinator, in the link's thread

    def _on_assigned(self, message: Assigned, buffers: Sequence[Any]) -> None:
        with self._changed:
            self._tasks.append(message)
            self._join(message.clock)
            self._changed.notify_all()

    def _on_granted(self, message: StepGrant, buffers: Sequence[Any]) -> None:
        with self._changed:
            self._granted += message.steps
            self._join(message.clock)
            self._changed.notify_all()

    def _join(self, clock: int | None) -> None:
        if clock is not None:
            # A worker joins at the slowest clock, whose message it may not have received.
            self._clock = clock
            self._slowest_clock = max(self._slowest_clock, clock)
            self._joins = True

    def _on_slowest_clock(self, message: SlowestClock, buffers: Sequence[Any]) -> None:
        with self._changed:
            self._slowest_clock = max(self._slowest_clock, message.clock)
            self._changed.notify_all()

    def _on_sync_point(self, message: SyncPoint, buffers: Sequence[Any]) -> None:
        with self._changed:
            self._sync_point = message
            self._changed.notify_all()

    # The reading thread

    def _read(self) -> None:
        try:
            for item in self._items():
                if not self._put(item):
                    return
        except BaseException as error:  # noqa: BLE001 - raised again in the training thread
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _items(self) -> Iterator[TaskBatch]:
        while (assigned := self._take_task()) is not None:
            task = assigned.task
            before: TaskBatch | None = None
            for number, batch in self._reader.read(task):
                if before is not None:
                    yield before
                before = TaskBatch(
                    task.epoch,
                    task.number,
                    number,
                    batch,
                    last=False,
                    updates=assigned.updates,
                    progress=assigned.progress,
                )
            if before is not None:
                yield replace(before, last=True)
            else:
                # Empty or completed before: report it, so that no process waits for it.
                empty = Trained(
                    self._coordinator.spec,
                    task.number,
                    task.epoch,
                    [],
                    0.0,
                    0.0,
                    0.0,
                    0.0,
                    0.0,
                    True,
                )
                self._coordinator.send(empty)

    def _take_task(self) -> Assigned | None:
        self._coordinator.send(TaskRequest(self._coordinator.spec))
        with self._changed:
            while not self._tasks and not self._closed:
                self._changed.wait()
            return None if self._closed else self._tasks.popleft()

    def _put(self, item: TaskBatch) -> bool:
        with self._changed:
            while len(self._batches) >= self._depth and not self._closed:
                self._changed.wait()
            self._batches.append(item)
            self._changed.notify_all()
            return not self._closed


def _runs(reports: Sequence[BatchReport]) -> Iterator[list[BatchReport]]:
    """Yield the reports of one task after another."""
    run: list[BatchReport] = []
    for report in reports:
        if run and (run[-1].item.task, run[-1].item.epoch) != (report.item.task, report.item.epoch):
            yield run
            run = []
        run.append(report)
    if run:
        yield run
