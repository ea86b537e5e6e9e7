"""Evaluations and checkpoints at a position: once each, and what follows from them."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from torch import nn
from torch.optim import SGD
from torch.optim.lr_scheduler import ReduceLROnPlateau

from flambeau.config import AllReduce, CodeRef, FileData, JobSettings
from flambeau.strategies.all_reduce import AllReduceStrategy
from flambeau.strategies.base import Clipping
from flambeau.strategies.group import Group, Solo
from flambeau.training.best import Best
from flambeau.training.callbacks import Callback, TrainingView
from flambeau.training.evaluation import Scores
from flambeau.training.milestones import Milestones
from flambeau.training.position import Position
from flambeau.training.schedules import LearningRate, TorchSchedule


class Heard(Callback):
    def __init__(self) -> None:
        self.metrics: list[Mapping[str, float]] = []

    def on_evaluation(self, view: TrainingView, metrics: Mapping[str, float]) -> None:
        self.metrics.append(metrics)


class Saves:
    def __init__(self) -> None:
        self.made: list[tuple[dict[str, float], bool]] = []

    def save(self, metrics: dict[str, float], *, best: bool) -> None:
        self.made.append((metrics, best))


def make_strategy() -> AllReduceStrategy:
    strategy = AllReduceStrategy(AllReduce(), Solo(), Clipping())
    strategy.attach(nn.Linear(1, 1), {}, own_step=False)
    return strategy


@dataclass
class Parts:
    """Milestones' parts in memory; each evaluation takes the next of `losses`."""

    losses: list[float]
    group: Group = field(default_factory=Solo)
    callbacks: Heard = field(default_factory=Heard)
    saving: Saves = field(default_factory=Saves)
    strategy: AllReduceStrategy = field(default_factory=make_strategy)
    evaluates: bool = True
    schedules: dict[str, LearningRate] = field(default_factory=dict)
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    @property
    def view(self) -> TrainingView:
        return TrainingView(nn.Identity(), {}, Path(), 0, 1, log=lambda values: None)

    @property
    def evaluate(self) -> Callable[[], Scores] | None:
        return self._evaluate if self.evaluates else None

    def _evaluate(self) -> Scores:
        return Scores({"loss": self.losses.pop(0)}, rows=5)

    def report(self, kind: str, **fields: Any) -> None:
        self.events.append((kind, fields))


def make(
    *losses: float,
    step: int = 3,
    patience: int | None = None,
    target: float | None = None,
    best: bool = True,
    **more: Any,
) -> tuple[Milestones, Parts]:
    parts = Parts(list(losses), **more)
    settings = JobSettings(
        model=CodeRef(path="m:Model"),
        train=FileData(path="x"),
        valid=FileData(path="y"),
        early_stopping={"patience": patience, "target": target} if patience or target else None,
    )
    position = Position(step=step, epoch=1)
    return Milestones(settings, parts, position, Best("loss") if best else None), parts


def at(milestones: Milestones, step: int) -> Milestones:
    milestones.position.step = step
    return milestones


def test_an_evaluation_is_told_to_observers_and_callbacks_and_kept() -> None:
    milestones, parts = make(0.5)
    milestones.evaluate()
    (kind, fields), *others = parts.events
    assert (kind, others) == ("evaluation", [])
    assert fields.pop("seconds") >= 0
    assert fields == {"step": 3, "epoch": 1, "metrics": {"loss": 0.5}, "rows": 5}
    assert parts.callbacks.metrics == [{"loss": 0.5}]
    assert milestones.metrics == {"loss": 0.5}
    assert milestones.history == [{"step": 3, "epoch": 1, "loss": 0.5}]


def test_a_position_is_evaluated_once() -> None:
    milestones, _ = make(0.5, 0.25)
    milestones.evaluate()
    milestones.evaluate()
    at(milestones, 4).evaluate()
    assert [entry["step"] for entry in milestones.history] == [3, 4]


def test_without_validation_data_there_is_no_evaluation() -> None:
    milestones, parts = make(evaluates=False)
    milestones.evaluate()
    assert (milestones.history, parts.events) == ([], [])


def test_replicas_are_made_equal_before_evaluating_and_saving(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    milestones, parts = make(0.5, best=False)
    order: list[str] = []
    monkeypatch.setattr(parts.strategy, "synchronize", lambda: order.append("equal"))
    monkeypatch.setattr(parts, "_evaluate", lambda: order.append("scores") or Scores({}, 1))
    monkeypatch.setattr(parts.saving, "save", lambda metrics, best: order.append("save"))
    milestones.evaluate()
    milestones.checkpoint()
    assert order == ["equal", "scores", "equal", "save"]


class Second(Group):
    rank = 1
    size = 2
    sum = broadcast = gather = None  # type: ignore[assignment]


def test_other_workers_than_the_first_evaluate_without_telling() -> None:
    milestones, parts = make(0.5, group=Second())
    milestones.evaluate()
    assert parts.events == []
    assert parts.callbacks.metrics == [{"loss": 0.5}]


def test_a_position_is_saved_once() -> None:
    milestones, parts = make(evaluates=False)
    milestones.checkpoint()
    milestones.checkpoint()
    assert parts.saving.made == [({}, False)]


def test_a_position_that_is_evaluated_after_it_was_saved_is_saved_with_its_metrics() -> None:
    milestones, parts = make(0.5, best=False)
    milestones.checkpoint()
    milestones.evaluate()
    milestones.checkpoint()
    assert parts.saving.made == [({}, False), ({"loss": 0.5}, False)]


def test_metrics_of_an_earlier_step_are_not_saved_as_those_of_this_one() -> None:
    milestones, parts = make(0.5, best=False)
    milestones.evaluate()
    at(milestones, 4).checkpoint()
    assert parts.saving.made == [({}, False)]


def test_a_new_best_is_saved_as_such_and_not_again() -> None:
    milestones, parts = make(2.0, 3.0, 1.0)
    for step in (1, 2, 3):
        at(milestones, step).evaluate()
    milestones.checkpoint()
    assert parts.saving.made == [({"loss": 2.0}, True), ({"loss": 1.0}, True)]
    assert milestones.best is not None
    assert milestones.best.value == 1.0


def test_a_best_is_marked_also_where_the_step_was_saved_already() -> None:
    milestones, parts = make(2.0)
    milestones.checkpoint()
    milestones.evaluate()
    assert parts.saving.made == [({}, False), ({"loss": 2.0}, True)]


def test_a_restored_position_is_not_saved_again() -> None:
    milestones, parts = make(evaluates=False)
    milestones.restored()
    milestones.checkpoint()
    assert parts.saving.made == []
    at(milestones, 4).checkpoint()
    assert len(parts.saving.made) == 1


def test_a_run_ends_when_the_target_is_reached() -> None:
    milestones, _ = make(1.0, 2.0, 2.0, 2.0, 2.0, 0.5, target=0.5)
    assert not milestones.finished_early
    for step in range(5):
        at(milestones, step).evaluate()
        assert not milestones.finished_early, "patience does not count beside a target"
    at(milestones, 5).evaluate()
    assert milestones.finished_early
    resumed, _ = make(target=0.5)
    resumed.load(milestones.dump())
    assert resumed.finished_early
    lower, _ = make(target=0.25)
    lower.load(milestones.dump())
    assert not lower.finished_early


def test_a_target_and_patience_both_end_a_run() -> None:
    milestones, _ = make(1.0, 2.0, 2.0, patience=2, target=0.5)
    for step in range(3):
        assert not milestones.finished_early
        at(milestones, step).evaluate()
    assert milestones.finished_early


def test_a_target_is_reached_although_the_gain_is_below_min_delta() -> None:
    best = Best("auc", min_delta=0.01)
    assert best.improves({"auc": 0.800})
    assert not best.improves({"auc": 0.803})
    assert best.reaches(0.8025, {"auc": 0.803})
    assert not best.reaches(0.8025, {"auc": 0.802})
    assert not best.reaches(0.8025, {"auc": math.nan})


def test_a_target_that_an_earlier_run_did_not_evaluate_is_not_reached() -> None:
    before, _ = make(0.1)
    before.evaluate()
    after, _ = make(target=0.5)
    values = before.dump()
    values["metrics"] = {"auc": 0.9}
    after.load(values)
    assert not after.finished_early


def test_a_run_ends_early_when_patience_is_used_up() -> None:
    milestones, _ = make(1.0, 2.0, math.nan, patience=2)
    ended = []
    for step in (1, 2, 3):
        at(milestones, step).evaluate()
        ended.append(milestones.finished_early)
    assert ended == [False, False, True]


def test_without_early_stopping_there_is_no_early_end() -> None:
    milestones, _ = make(*range(9))
    for step in range(9):
        at(milestones, step).evaluate()
    assert milestones.patience is None
    assert not milestones.finished_early


def test_from_a_dump_everything_goes_on() -> None:
    before, _ = make(1.0, 2.0, patience=2)
    for step in (1, 2):
        at(before, step).evaluate()
    after, parts = make(1.5, step=2, patience=2)
    after.load(before.dump())
    after.evaluate()
    assert after.history == before.history, "this step was evaluated before"
    at(after, 3).evaluate()
    assert after.finished_early
    assert parts.saving.made == [], "1.5 is no better than what was there before"


@pytest.mark.parametrize(("first", "second"), [(None, 2), (2, None)])
def test_a_dump_may_come_from_a_run_with_other_rules(first: Any, second: Any) -> None:
    before, _ = make(1.0, best=first is None, patience=first)
    before.evaluate()
    after, _ = make(best=second is None, patience=second)
    after.load(before.dump())
    assert after.metrics == {"loss": 1.0}
    assert not after.finished_early


def test_what_was_saved_is_known_after_a_dump_as_well() -> None:
    before, _ = make(1.0)
    before.evaluate()
    before.checkpoint()
    after, parts = make()
    after.load(before.dump())
    after.checkpoint()
    assert parts.saving.made == [], "this step was saved before"


def make_plateau() -> tuple[SGD, dict[str, LearningRate]]:
    optimizer = SGD(nn.Linear(1, 1).parameters(), lr=1.0)
    scheduler = ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
    return optimizer, {"": TorchSchedule(scheduler, metric="loss")}


def test_a_plateau_is_noticed_before_anything_is_saved_and_goes_on_from_a_dump() -> None:
    optimizer, schedules = make_plateau()
    milestones, _ = make(0.5, 0.6, schedules=schedules)
    milestones.evaluate()
    at(milestones, 4).evaluate()
    assert optimizer.param_groups[0]["lr"] == 0.5
    other, schedules = make_plateau()
    resumed, _ = make(0.55, step=5, schedules=schedules)
    resumed.load(milestones.dump())
    assert other.param_groups[0]["lr"] == 0.5
    resumed.evaluate()
    assert other.param_groups[0]["lr"] == 0.25


def test_a_best_checkpoint_knows_the_evaluation_that_made_it_the_best() -> None:
    _, schedules = make_plateau()
    milestones, parts = make(0.5, schedules=schedules)
    saved: list[Any] = []
    parts.saving.save = lambda metrics, best: saved.append(milestones.dump())  # type: ignore[method-assign]
    milestones.evaluate()
    assert saved[0]["watching"][""]["scheduler"]["best"] == 0.5
