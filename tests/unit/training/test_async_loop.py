"""The loop of a worker that runs at its own pace, conducted by a list."""

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer
from training_in_memory import SHAPE, Calls, Model, StopAt

from flambeau.config import Binding, CodeRef, FileData, JobSettings
from flambeau.coordination.task_messages import SyncPoint
from flambeau.data.batch import Batch
from flambeau.data.binding import Binder
from flambeau.strategies.base import StepShare, Strategy
from flambeau.strategies.group import Group, Solo
from flambeau.training.async_loop import AsyncTrainer
from flambeau.training.best import Best
from flambeau.training.callbacks import Callback, TrainingView
from flambeau.training.evaluation import Scores
from flambeau.training.losses import build_loss
from flambeau.training.parts import TrainingParts
from flambeau.training.position import Position
from flambeau.training.schedules import FactorSchedule
from flambeau.training.step import StandardStep
from flambeau.training.step_times import StepTimes
from flambeau.training.task_feed import BatchReport, TaskBatch

Item = TaskBatch | SyncPoint


def batch_of(
    task: int, number: int, rows: int = 4, epoch: int = 0, last: bool = False, updates: int = 0
) -> Item:
    x = torch.linspace(-1, 1, rows) + number
    batch = Batch({"x": x, "y": 3 * x}, rows, epoch, number)
    return TaskBatch(epoch, task, number, batch, last, updates)


def sync_point(step: int, epoch: int = 0, number: int = 0, **what: Any) -> SyncPoint:
    asked = {
        "evaluate": False,
        "save": False,
        "last": False,
        "plan": {},
        "progress": {},
        "ranks": [0],
        **what,
    }
    return SyncPoint(number, step, epoch, **asked)


LAST = sync_point(9, last=True)


class Given:
    """Hands out a list, and remembers what it is told."""

    def __init__(self, items: list[Item]) -> None:
        self._items = list(items)
        self.reports: list[BatchReport] = []
        self.meetings: list[tuple[int, bool, dict[str, Any]]] = []

    def next(self) -> Item:
        return self._items.pop(0)

    def upcoming(self) -> TaskBatch | None:
        following = self._items[0]
        return following if isinstance(following, TaskBatch) else None

    def trained(self, report: BatchReport) -> None:
        self.reports.append(report)

    def stop(self) -> None:
        self._items = [item for item in self._items if isinstance(item, SyncPoint)]

    def met(self, sync_point: SyncPoint, *, stop: bool, progress: dict[str, Any]) -> None:
        self.meetings.append((sync_point.number, stop, progress))


class AppliesAtOnce(Strategy):
    """Applies gradients at once, and remembers what it was asked."""

    def __init__(self) -> None:
        self.shares: list[StepShare] = []
        self.seen: list[tuple[Batch, Batch | None]] = []
        self.synchronized = self.caught_up = 0

    def attach(
        self, model: nn.Module, optimizers: Mapping[str, Optimizer], *, own_step: bool
    ) -> Callable[..., Any]:
        self._optimizer = optimizers[""]
        return model

    def begin(self, rows: StepShare) -> float:
        self.shares.append(rows)
        return 1.0

    def backward(self, loss: Tensor, *, last: bool) -> None:
        loss.backward()

    def update(self, name: str = "") -> None:
        self._optimizer.step()
        self._optimizer.zero_grad()

    def synchronize(self) -> None:
        self.synchronized += 1

    def catch_up(self) -> None:
        self.caught_up += 1

    def look_ahead(self, batch: Batch, upcoming: Batch | None) -> None:
        self.seen.append((batch, upcoming))

    def communication_seconds(self) -> float:
        return 0.25


class OfTwo(Group):
    rank = 0
    size = 2
    sum = broadcast = gather = None  # type: ignore[assignment]


@dataclass
class Training:
    """A free trainer with all its parts in memory."""

    items: list[Item]
    group: Group = field(default_factory=Solo)
    callback: Callback = field(default_factory=Callback)
    position: Position = field(default_factory=Position)
    losses: list[float] | None = None
    lr: float = 0.1
    patience: int | None = None

    def __post_init__(self) -> None:
        self.model, self.strategy, self.feed = Model(), AppliesAtOnce(), Given(self.items)
        self.saved: list[tuple[int, bool]] = []
        self.events: list[str] = []
        self.stops = 0
        optimizers: dict[str, Optimizer] = {"": SGD(self.model.parameters(), lr=self.lr)}
        self.strategy.attach(self.model, optimizers, own_step=False)
        binder = Binder(Binding(label="y"), self.model.forward, SHAPE)
        self.view = TrainingView(self.model, optimizers, Path(), 0, 1, log=lambda values: None)
        self.schedule = FactorSchedule(optimizers[""], lambda updates, epochs: 0.5**updates)
        parts = TrainingParts(
            model=self.model,
            optimizers=optimizers,
            schedules={"": self.schedule},
            strategy=self.strategy,
            group=self.group,
            step=StandardStep(
                self.model, binder, build_loss("mse"), self.strategy, contextlib.nullcontext
            ),
            callbacks=self.callback,
            view=self.view,
            evaluate=self._evaluate if self.losses is not None else None,
            saving=self,
            report=lambda kind, **fields: self.events.append(kind),
            times=StepTimes(self.strategy.table_seconds),
        )
        settings = JobSettings(
            model=CodeRef(path="m:Model"),
            train=FileData(path="x"),
            valid=FileData(path="y"),
            early_stopping={"patience": self.patience} if self.patience else None,
        )
        best = Best("loss") if self.losses is not None else None
        self.trainer = AsyncTrainer(
            settings, parts, self.position, best, self.feed, self._want_stop
        )

    def save(self, metrics: dict[str, float], *, best: bool) -> None:
        self.saved.append((self.position.step, best))

    def _evaluate(self) -> Scores:
        assert self.losses is not None
        return Scores({"loss": self.losses.pop(0)}, rows=5)

    def _want_stop(self) -> None:
        self.stops += 1

    def run(self) -> "Training":
        assert self.trainer.run() == "finished"
        return self


def test_it_does_what_a_plain_loop_does() -> None:
    items = [batch_of(0, number) for number in range(3)]
    training, model = Training([*items, LAST]).run(), Model()
    for number, item in enumerate(items):
        assert isinstance(item, TaskBatch)
        loss = nn.functional.mse_loss(model(item.batch["x"]), item.batch["y"])
        model.zero_grad()
        loss.backward()
        SGD(model.parameters(), lr=0.1 * 0.5**number).step()
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(training.model.state_dict()[name], tensor)


def test_a_gradient_is_known_by_its_place_in_the_data() -> None:
    items = [batch_of(7, 2, rows=3, epoch=1), batch_of(4, 0, rows=2, epoch=1)]
    training = Training([*items, LAST]).run()
    assert training.strategy.shares == [StepShare(3, 3, 2, 1, 7), StepShare(2, 2, 0, 1, 4)]


def test_every_batch_is_reported_after_it_was_trained_on() -> None:
    items = [batch_of(0, 0), batch_of(0, 1, rows=2, last=True)]
    training = Training([*items, LAST]).run()
    reports = training.feed.reports
    assert [report.item for report in reports] == items
    assert [report.lr for report in reports] == [0.05, 0.025]
    assert all(report.waiting_seconds == 0.25 for report in reports)
    assert all(0 <= report.data_seconds <= report.seconds for report in reports)
    assert reports[0].loss == pytest.approx(float((3 * torch.linspace(-1, 1, 4)).square().mean()))


def test_a_loss_that_is_not_known_is_reported_as_nan() -> None:
    training = Training([batch_of(0, 0), LAST])
    training.trainer._parts.step = lambda batch, share, number: math.inf  # type: ignore[assignment]
    training.run()
    assert math.isnan(training.feed.reports[0].loss)


def test_schedules_move_on_as_often_as_all_workers_together_update() -> None:
    training = Training([batch_of(0, 0), batch_of(0, 1), LAST], group=OfTwo()).run()
    assert training.schedule.state_dict()["updates"] == 4


@pytest.mark.parametrize(
    ("known", "updates"),
    [
        pytest.param([0, 0, 4, 4], 4 * 2, id="as fast as the other"),
        pytest.param([3, 3, 3, 3], 3 + 4 * 2, id="one that begins later"),
        pytest.param([0, 0, 9, 9], 9 + 2 * 2, id="one that was slow"),
    ],
)
def test_schedules_are_not_behind_what_is_known_of_all_workers(
    known: list[int], updates: int
) -> None:
    items = [batch_of(0, number, updates=made) for number, made in enumerate(known)]
    training = Training([*items, LAST], group=OfTwo()).run()
    assert training.schedule.state_dict()["updates"] == updates


def test_schedules_of_a_run_that_goes_on_do_not_move_twice() -> None:
    items = [batch_of(0, 0, updates=5)]
    training = Training([*items, LAST], group=OfTwo(), position=Position(step=5)).run()
    assert training.schedule.state_dict()["updates"] == 2


def test_a_worker_that_was_idle_takes_the_newest_weights() -> None:
    first, second = batch_of(0, 0), batch_of(0, 1)
    assert isinstance(first, TaskBatch)
    training = Training([replace(first, joins=True), second, LAST]).run()
    assert training.strategy.caught_up == 1


def test_a_new_worker_takes_over_what_the_others_know_with_its_first_batch() -> None:
    known = {**Training([]).trainer.milestones.dump(), "history": [{"step": 3, "loss": 1.0}]}
    first, second = batch_of(0, 0), batch_of(0, 1)
    assert isinstance(first, TaskBatch)
    assert isinstance(second, TaskBatch)
    new = [replace(item, progress=known) for item in (first, second)]
    training = Training([*new, LAST]).run()
    assert training.trainer.milestones.history == known["history"]


def test_what_a_moment_said_is_newer_than_what_came_with_a_batch_read_before() -> None:
    empty = Training([]).trainer.milestones.dump()
    old, new = ({**empty, "history": [{"step": step, "loss": 1.0}]} for step in (3, 4))
    first = batch_of(0, 0)
    assert isinstance(first, TaskBatch)
    items = [sync_point(4, progress=new), replace(first, progress=old), LAST]
    assert Training(items).run().trainer.milestones.history == new["history"]


@pytest.mark.parametrize("ahead", [False, True])
def test_the_next_batch_is_shown_to_a_strategy_that_looks_ahead(ahead: bool) -> None:
    items = [batch_of(0, 0), batch_of(0, 1)]
    training = Training([*items, LAST])
    training.strategy.looks_ahead = ahead
    training.run()
    first, second = (item.batch for item in items if isinstance(item, TaskBatch))
    (one, after_one), (two, after_two) = training.strategy.seen
    assert (one is first, two is second) == (True, True)
    assert after_one is (second if ahead else None)
    assert after_two is None


def test_at_a_moment_all_workers_have_the_same_position() -> None:
    training = Training([batch_of(0, 0), sync_point(5, epoch=2), LAST], position=Position(step=1))
    places = []
    training.trainer.on_sync_point = lambda sync_point: places.append(
        (training.position.step, training.position.epoch)
    )
    training.run()
    assert places == [(5, 2), (9, 2)]
    assert (training.view.step, training.view.epoch) == (9, 2)
    assert training.schedule.state_dict()["epochs"] == 2
    assert training.position.rows == 4, "its own rows"


def test_replicas_are_made_equal_at_each_moment() -> None:
    assert Training([sync_point(0), LAST]).run().strategy.synchronized == 2


def test_a_moment_evaluates_and_saves_when_it_is_asked_to() -> None:
    sync_points = [
        sync_point(1, number=1, evaluate=True),
        sync_point(2, number=2, save=True),
        sync_point(3, number=3),
        sync_point(4, number=4, evaluate=True, save=True, last=True),
    ]
    training = Training(sync_points, losses=[2.0, 3.0]).run()
    assert training.events == ["evaluation"] * 2
    assert training.saved == [(1, True), (2, False), (4, False)]
    assert [number for number, _, _ in training.feed.meetings] == [1, 2, 3, 4]


def test_it_ends_with_the_last_moment_and_not_before() -> None:
    later = batch_of(0, 1)
    training = Training([sync_point(0), batch_of(0, 0), LAST, later]).run()
    assert len(training.feed.reports) == 1
    assert training.feed.next() is later


def test_callbacks_are_told_everything_in_order() -> None:
    calls = Calls()
    items = [batch_of(0, 0), batch_of(1, 0), sync_point(3, epoch=1), batch_of(0, 0, epoch=1), LAST]
    Training(items, callback=calls, position=Position(step=0)).run()
    # Another worker made the third step of the first epoch.
    steps = [("step", 1), ("step", 2), ("epoch", 3), ("step", 4)]
    assert calls.made == [("start", 0), *steps, ("end", 9)]


def test_a_callback_asks_the_coordinator_once_to_stop() -> None:
    items = [batch_of(0, number) for number in range(4)]
    training = Training([*items, LAST], callback=StopAt(2)).run()
    assert len(training.feed.reports) == 2
    assert training.stops == 1
    assert [stop for _, stop, _ in training.feed.meetings] == [True]


@pytest.mark.parametrize(("stops", "status"), [(True, "stopped"), (False, "finished")])
def test_a_training_that_is_stopped_is_not_finished(stops: bool, status: str) -> None:
    training = Training([batch_of(0, 0), sync_point(1, last=True, stops=stops)])
    assert training.trainer.run() == status


def test_without_a_callback_nobody_asks_to_stop() -> None:
    training = Training([batch_of(0, 0), LAST]).run()
    assert (training.stops, training.feed.meetings[0][1]) == (0, False)


def test_early_stopping_is_said_at_the_moment_that_finds_it() -> None:
    sync_points = [sync_point(step, number=step, evaluate=True) for step in (1, 2)]
    training = Training([*sync_points, LAST], losses=[1.0, 2.0], patience=1).run()
    assert [stop for _, stop, _ in training.feed.meetings] == [False, True, True]
    assert training.trainer.milestones.finished_early


def test_a_worker_that_joins_later_goes_on_from_what_the_others_had_reached() -> None:
    first = Training([sync_point(1, evaluate=True), LAST], losses=[1.0]).run()
    reached = first.feed.meetings[0][2]
    joined = Training(
        [sync_point(2, evaluate=True, progress=reached), LAST], losses=[2.0], patience=1
    ).run()
    history = joined.trainer.milestones.history
    assert [entry["loss"] for entry in history] == [1.0, 2.0]
    assert joined.saved == [], "what it found is no better than what the others had"
