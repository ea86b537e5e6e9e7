import math
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import torch
from fake_coordinator import PATIENCE, FakeCoordinator
from fake_stage import spec

from flambeau.coordination.consistency import Asynchronous, Bounded, StalenessPolicy
from flambeau.coordination.task_messages import (
    Assigned,
    SlowestClock,
    StepGrant,
    SyncPoint,
    SyncPointDone,
    TaskRequest,
    Trained,
)
from flambeau.coordination.tasks import Task
from flambeau.data.batch import Batch
from flambeau.data.task_reader import TaskReader
from flambeau.errors import DataError
from flambeau.training import task_feed
from flambeau.training.async_loop import BatchReport, TaskBatch
from flambeau.training.task_feed import CoordinatorGroup, TaskFeed

MOMENT = SyncPoint(3, 40, 1, True, True, False, {}, {}, [0, 1])


class Reader(TaskReader):
    """Tasks of given sizes: each row is a batch of as many rows as its number plus one."""

    def __init__(self) -> None:
        super().__init__(None, None, 1)  # type: ignore[arg-type]
        self.error: Exception | None = None

    def _read(self, task: Task) -> Iterator[Batch]:
        for number in range(task.first_batch, task.stop):
            yield Batch({"x": torch.zeros(number + 1)}, number + 1)
        if self.error is not None:
            raise self.error


class Worker:
    """A feed whose coordinator is the test."""

    def __init__(
        self, policy: StalenessPolicy, read_ahead: int = 8, *, limited: bool = False
    ) -> None:
        self.coordinator = FakeCoordinator(rank=1)
        self.reader = Reader()
        coordinator: Any = self.coordinator
        self.group = CoordinatorGroup(coordinator)
        self.feed = TaskFeed(
            coordinator, self.group, self.reader, policy, read_ahead, limited=limited
        )
        self._pool = ThreadPoolExecutor(1)

    def assign(self, batches: int, number: int = 0, **fields: Any) -> None:
        self.coordinator.hear(Assigned(Task(0, number, 0, batches, **fields), None))

    def batch(self) -> TaskBatch:
        item = self.next().result(PATIENCE)
        assert isinstance(item, TaskBatch)
        return item

    def next(self) -> "Future[Any]":
        """What the training loop gets, if it asks now."""
        return self._pool.submit(self.feed.next)

    def train(self, loss: float = 1.0) -> TaskBatch:
        item = self.batch()
        self.feed.trained(BatchReport(item, loss, 1.0, 0.25, 0.5, 0.1))
        return item

    def close(self) -> None:
        self.feed.close()
        self._pool.shutdown()


@pytest.fixture(autouse=True)
def _reports_do_not_go_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_feed, "REPORT_SECONDS", 1000.0)


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker(Asynchronous())
    yield worker
    worker.close()


class Watched(StalenessPolicy):
    """Says when it has held a worker back."""

    def __init__(self, staleness: int) -> None:
        self._policy = Bounded(staleness)
        self.refused = threading.Event()

    def members(self, arrived: frozenset[int]) -> frozenset[int] | None:
        return self._policy.members(arrived)

    def may_start(self, step: int, floor: int) -> bool:
        may = self._policy.may_start(step, floor)
        if not may and step < 1000:
            self.refused.set()
        return may


@pytest.fixture
def policy() -> Watched:
    return Watched(0)


@pytest.fixture
def bounded(policy: Watched) -> Iterator[Worker]:
    worker = Worker(policy)
    yield worker
    worker.close()


@pytest.fixture
def limited() -> Iterator[Worker]:
    worker = Worker(Asynchronous(), limited=True)
    yield worker
    worker.close()


def test_a_worker_that_stops_gets_no_further_batch(worker: Worker) -> None:
    worker.assign(3)
    worker.train()
    worker.feed.stop()
    assert worker.coordinator.next_sent(Trained).batches == [(0, 1)]
    waiting = worker.next()
    worker.coordinator.hear(MOMENT)
    assert waiting.result(PATIENCE) is MOMENT


def test_a_limited_worker_begins_what_it_is_granted(limited: Worker) -> None:
    limited.assign(3)
    limited.coordinator.hear(StepGrant(2, None))
    limited.train()
    limited.train()
    waiting = limited.next()
    # It tells of its steps at once, since more may be granted then.
    assert limited.coordinator.next_sent(Trained).batches == [(0, 1), (1, 2)]
    assert not waiting.done()
    limited.coordinator.hear(StepGrant(1, None))
    assert waiting.result(PATIENCE).number == 2


def test_what_was_granted_may_be_taken_back(limited: Worker) -> None:
    limited.coordinator.hear(StepGrant(2, None))
    limited.coordinator.hear(StepGrant(-2, None))
    limited.assign(1)
    waiting = limited.next()
    limited.coordinator.hear(MOMENT)
    assert waiting.result(PATIENCE) == MOMENT


def test_the_batches_of_a_task_come_in_order_and_the_last_is_known(worker: Worker) -> None:
    worker.assign(3, number=5)
    items = [worker.batch() for _ in range(3)]
    assert [(item.task, item.number, item.last) for item in items] == [
        (5, 0, False),
        (5, 1, False),
        (5, 2, True),
    ]


def test_a_task_that_was_begun_goes_on_at_its_first_batch(worker: Worker) -> None:
    worker.assign(3, first_batch=2)
    item = worker.batch()
    assert (item.number, item.last) == (2, True)


def test_the_next_task_is_asked_for_before_this_one_is_trained_on(worker: Worker) -> None:
    worker.coordinator.next_sent(TaskRequest)
    worker.assign(2)
    assert worker.coordinator.next_sent(TaskRequest) == TaskRequest(spec(1))


def test_the_batch_to_come_is_known_when_it_has_been_read(worker: Worker) -> None:
    worker.assign(2)
    worker.coordinator.next_sent(TaskRequest)
    worker.coordinator.next_sent(TaskRequest)
    first = worker.feed.upcoming()
    assert first is not None
    assert worker.batch() is first
    assert worker.batch().last
    assert worker.feed.upcoming() is None


def test_an_empty_task_is_said_to_be_complete(worker: Worker) -> None:
    worker.assign(2, number=4, first_batch=2)
    trained = worker.coordinator.next_sent(Trained)
    assert (trained.task, trained.batches, trained.complete) == (4, [], True)


def test_an_error_of_reading_is_raised_in_the_training_thread(worker: Worker) -> None:
    worker.reader.error = DataError("a torn file")
    worker.assign(0)
    with pytest.raises(DataError, match="a torn file"):
        worker.next().result(PATIENCE)


# Moments


def test_a_moment_comes_before_batches_that_are_ready(worker: Worker) -> None:
    worker.assign(2)
    worker.coordinator.next_sent(TaskRequest)
    worker.coordinator.next_sent(TaskRequest)
    worker.coordinator.hear(MOMENT)
    assert worker.next().result(PATIENCE) == MOMENT
    assert worker.batch().number == 0


def test_a_worker_without_work_is_woken_by_a_moment(worker: Worker) -> None:
    asked = worker.next()
    worker.coordinator.hear(MOMENT)
    assert asked.result(PATIENCE) == MOMENT


def test_what_was_trained_is_reported_before_a_moment(worker: Worker) -> None:
    worker.assign(3)
    worker.train()
    assert not worker.coordinator.all_sent(Trained)
    worker.coordinator.hear(MOMENT)
    worker.next().result(PATIENCE)
    (trained,) = worker.coordinator.all_sent(Trained)
    assert (trained.batches, trained.complete) == ([(0, 1)], False)


def test_the_exchanges_of_a_moment_begin_with_it(worker: Worker) -> None:
    worker.coordinator.hear(MOMENT)
    worker.next().result(PATIENCE)
    assert (worker.group._sync_point, worker.group._number) == (3, 0)


def test_a_moment_that_is_done_is_said_to_be(worker: Worker) -> None:
    worker.feed.met(MOMENT, stop=True, progress={"metrics": {}})
    assert worker.coordinator.next_sent(SyncPointDone) == SyncPointDone(
        spec(1), 3, True, {"metrics": {}}
    )


# Reports


def test_batches_are_reported_together_at_the_end_of_their_task(worker: Worker) -> None:
    worker.assign(3, number=7)
    for loss in (1.0, 2.0):
        worker.train(loss)
    assert not worker.coordinator.all_sent(Trained)
    worker.train(4.0)
    (trained,) = worker.coordinator.all_sent(Trained)
    assert trained == Trained(
        spec(1), 7, 0, [(0, 1), (1, 2), (2, 3)], 1.0 + 4.0 + 12.0, 3.0, 0.75, 1.5, 0.1, True
    )


def test_a_loss_that_is_not_known_is_left_out(worker: Worker) -> None:
    worker.assign(2)
    worker.train(math.nan)
    worker.train(3.0)
    assert worker.coordinator.next_sent(Trained).loss == 6.0


def test_batches_are_reported_after_a_while(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker.assign(3)
    monkeypatch.setattr(task_feed, "REPORT_SECONDS", 0.0)
    worker.train()
    assert worker.coordinator.next_sent(Trained).batches == [(0, 1)]


def test_a_worker_that_runs_out_of_work_reports_what_it_has(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = TaskBatch(0, 2, 0, Batch({"x": torch.zeros(4)}, 4), last=False)
    worker.feed.trained(BatchReport(item, 1.0, 1.0, 0.25, 0.5, 0.1))
    monkeypatch.setattr(task_feed, "REPORT_SECONDS", 0.001)
    asked = worker.next()
    assert worker.coordinator.next_sent(Trained).batches == [(0, 4)]
    worker.coordinator.hear(MOMENT)
    asked.result(PATIENCE)


def test_each_task_has_a_report_of_its_own() -> None:
    def report(epoch: int, task: int, number: int) -> BatchReport:
        item = TaskBatch(epoch, task, number, Batch({}, 1), last=False)
        return BatchReport(item, 1.0, 1.0, 1.0, 1.0, 1.0)

    reports = [report(0, 1, 0), report(0, 1, 1), report(0, 2, 0), report(1, 2, 0)]
    runs = [[r.item.number for r in run] for run in task_feed._runs(reports)]
    assert runs == [[0, 1], [0], [0]]
    assert not list(task_feed._runs([]))


# Bounded staleness


def test_a_worker_that_is_ahead_waits_for_the_slowest(bounded: Worker, policy: Watched) -> None:
    bounded.assign(3)
    bounded.train()
    asked = bounded.next()
    assert policy.refused.wait(PATIENCE)
    assert not asked.done()
    bounded.coordinator.hear(SlowestClock(1))
    assert asked.result(PATIENCE).number == 1


def test_a_moment_breaks_the_waiting(bounded: Worker, policy: Watched) -> None:
    bounded.assign(3)
    bounded.train()
    asked = bounded.next()
    assert policy.refused.wait(PATIENCE)
    bounded.coordinator.hear(MOMENT)
    assert asked.result(PATIENCE) == MOMENT


def test_with_a_bound_every_batch_is_reported_at_once(bounded: Worker) -> None:
    bounded.assign(3)
    bounded.train()
    assert bounded.coordinator.next_sent(Trained).batches == [(0, 1)]


def test_a_worker_that_joins_late_starts_at_the_floor_and_then_waits(
    bounded: Worker, policy: Watched
) -> None:
    bounded.coordinator.hear(Assigned(Task(0, 0, 0, 2), clock=9))
    assert bounded.train().number == 0
    asked = bounded.next()
    assert policy.refused.wait(PATIENCE)
    assert not asked.done()
    bounded.coordinator.hear(SlowestClock(10))
    assert asked.result(PATIENCE).number == 1


def test_the_first_batch_of_a_worker_that_was_idle_says_so(worker: Worker) -> None:
    worker.coordinator.hear(
        Assigned(Task(0, 0, 0, 2), clock=0, updates=7, progress={"metrics": {}})
    )
    first, second = worker.train(), worker.train()
    assert [(item.joins, item.updates) for item in (first, second)] == [(True, 7), (False, 7)]
    assert first.progress == {"metrics": {}}
    worker.assign(1, number=1)
    assert not worker.train().joins
    worker.coordinator.hear(StepGrant(1, clock=3))
    worker.assign(1, number=2)
    assert worker.train().joins


def test_the_floor_does_not_go_back(bounded: Worker) -> None:
    bounded.coordinator.hear(SlowestClock(1))
    bounded.coordinator.hear(SlowestClock(0))
    bounded.assign(3)
    bounded.train()
    assert bounded.batch().number == 1
