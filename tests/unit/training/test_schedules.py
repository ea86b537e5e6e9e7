"""Schedules against their closed formulas."""

import json
import math

import pytest
import torch
from torch.optim import lr_scheduler

from flambeau.config.code import CodeRef
from flambeau.config.schedule import Schedule
from flambeau.errors import ConfigError
from flambeau.training.schedules import LearningRate, build_schedule

TOTAL, PER_EPOCH = 20, 5
BASE = 0.5


def load(ref: CodeRef) -> object:
    mine = {
        "mine:half": lambda optimizer: lr_scheduler.ExponentialLR(optimizer, 0.5),
        "mine:plateau": lr_scheduler.ReduceLROnPlateau,
        "mine:wrong": lambda optimizer: 7,
    }
    if ref.name in mine:
        return mine[ref.name]
    return getattr(lr_scheduler, ref.name.split(":")[1])


def sgd() -> torch.optim.SGD:
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=BASE)


def build(setting: Schedule | CodeRef, optimizer, total: int | None = TOTAL) -> LearningRate:
    return build_schedule(setting, optimizer, total, PER_EPOCH, load)


def train(schedule: LearningRate, optimizer, start: int, stop: int) -> list[float]:
    """The learning rate of each update from `start` to `stop`, relative to the base."""
    rates = []
    for step in range(start, stop):
        rates.append(optimizer.param_groups[0]["lr"] / BASE)
        optimizer.step()
        schedule.step()
        if (step + 1) % PER_EPOCH == 0:
            schedule.epoch_end()
    return rates


def rates(setting: Schedule | CodeRef, total: int | None = TOTAL) -> list[float]:
    optimizer = sgd()
    return train(build(setting, optimizer, total), optimizer, 0, TOTAL)


def test_constant():
    assert rates(Schedule(), total=None) == [1.0] * TOTAL


def test_warmup_rises_linearly_to_1():
    expected = [0.2 + 0.8 * step / 4 for step in range(4)] + [1.0] * (TOTAL - 4)
    assert rates(Schedule(warmup=4, warmup_from=0.2)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        ("linear", lambda progress: 1 - progress),
        ("cosine", lambda progress: (1 + math.cos(math.pi * progress)) / 2),
        ("polynomial", lambda progress: (1 - progress) ** 3),
    ],
)
def test_decay_falls_from_the_warmup_to_the_last_step(kind, shape):
    expected = [step / 4 for step in range(4)]
    expected += [0.1 + 0.9 * shape((step - 4) / 16) for step in range(4, TOTAL)]
    assert rates(Schedule(kind=kind, warmup=4, end=0.1, power=3.0)) == pytest.approx(expected)


def test_decay_ends_after_its_own_steps_and_stays():
    expected = [max(0.25, 1 - 0.75 * step / 8) for step in range(TOTAL)]
    assert rates(Schedule(kind="linear", steps=8, end=0.25), total=None) == pytest.approx(expected)


@pytest.mark.parametrize("steps", [6, None])
def test_a_decay_starts_where_it_is_told(steps):
    setting = Schedule(kind="polynomial", warmup=4, start=9, steps=steps, power=2.0, end=0.2)
    length = steps or TOTAL - 9
    expected = [step / 4 for step in range(4)] + [1.0] * 5
    expected += [0.2 + 0.8 * max(0.0, 1 - (step - 9) / length) ** 2 for step in range(9, TOTAL)]
    assert rates(setting) == pytest.approx(expected)


def test_a_decay_may_start_behind_the_last_step():
    assert rates(Schedule(kind="linear", start=TOTAL + 5)) == [1.0] * TOTAL


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "polynomial", "warmup": 5, "start": 4}, "start=4 is before the end of the warm"),
        ({"kind": "constant", "start": 4}, "leave it out with kind='constant'"),
        ({"kind": "step", "milestones": (3,), "start": 4}, "leave it out with kind='step'"),
    ],
)
def test_a_start_that_means_nothing_is_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        Schedule(**settings)


@pytest.mark.parametrize("kind", ["linear", "cosine", "polynomial"])
def test_decay_over_an_unknown_length_is_an_error(kind):
    with pytest.raises(ConfigError, match=rf"kind='{kind}' .* set schedule\.steps"):
        rates(Schedule(kind=kind), total=None)


def test_milestones_in_steps():
    expected = [1.0] * 3 + [0.5] * 9 + [0.25] * 8
    assert rates(Schedule(kind="step", milestones=(12, 3), gamma=0.5)) == pytest.approx(expected)


def test_milestones_in_epochs():
    setting = Schedule(kind="step", milestones=(1, 3), gamma=0.1, unit="epoch")
    assert rates(setting, total=None) == pytest.approx([1.0] * 5 + [0.1] * 10 + [0.01] * 5)


def test_each_group_keeps_its_own_learning_rate():
    parameters = [{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": lr} for lr in (0.1, 0.4)]
    optimizer = torch.optim.SGD(parameters)
    schedule = build(Schedule(kind="linear", steps=2), optimizer)
    optimizer.step()
    schedule.step()
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.05, 0.2])


def test_torch_scheduler_advances_per_update():
    setting = Schedule(kind="torch", scheduler="torch:ExponentialLR", args={"gamma": 0.9})
    assert rates(setting) == pytest.approx([0.9**step for step in range(TOTAL)])


def test_torch_scheduler_advances_per_epoch():
    setting = Schedule(
        kind="torch", scheduler="torch:ExponentialLR", args={"gamma": 0.9}, unit="epoch"
    )
    assert rates(setting) == pytest.approx([0.9 ** (step // 5) for step in range(TOTAL)])


def test_code_gives_a_torch_scheduler_that_advances_per_update():
    assert rates(CodeRef(path="mine:half")) == pytest.approx([0.5**step for step in range(TOTAL)])


@pytest.mark.parametrize("args", [{}, {"epochs": TOTAL // PER_EPOCH}])
def test_one_cycle_gets_the_length_of_the_training(args):
    setting = Schedule(kind="torch", scheduler="torch:OneCycleLR", args={"max_lr": BASE, **args})
    optimizer = sgd()
    expected = lr_scheduler.OneCycleLR(optimizer, max_lr=BASE, total_steps=TOTAL)
    values = []
    for _ in range(TOTAL):
        values.append(expected.get_last_lr()[0] / BASE)
        optimizer.step()
        expected.step()
    assert rates(setting) == pytest.approx(values)


def plateau(**values) -> Schedule:
    args = {"factor": 0.5, "patience": 1}
    return Schedule(kind="torch", scheduler="torch:ReduceLROnPlateau", args=args, **values)


def watching(setting: Schedule | CodeRef, optimizer, metric: str | None) -> LearningRate:
    return build_schedule(setting, optimizer, TOTAL, PER_EPOCH, load, metric)


def test_a_plateau_of_the_metric_reduces_the_rate_and_steps_and_epochs_do_not():
    optimizer = sgd()
    schedule = watching(plateau(metric="auc"), optimizer, "loss")
    assert train(schedule, optimizer, 0, TOTAL) == [1.0] * TOTAL
    values = [0.6, 0.7, 0.7, 0.65, 0.8, 0.1, 0.1]
    found = []
    for value in values:
        schedule.evaluated({"auc": value, "loss": 1.0})
        found.append(optimizer.param_groups[0]["lr"] / BASE)
    assert found == [1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.25]


def test_a_plateau_goes_on_from_its_state():
    optimizer = sgd()
    schedule = watching(plateau(), optimizer, "loss")
    for value in (3.0, 4.0, 4.0, 4.0):
        schedule.evaluated({"loss": value})
    state = json.loads(json.dumps(schedule.state_dict()))
    other = sgd()
    resumed = watching(plateau(), other, "loss")
    resumed.load_state_dict(state)
    assert other.param_groups[0]["lr"] == 0.5 * BASE
    resumed.evaluated({"loss": 3.5})
    assert other.param_groups[0]["lr"] == 0.25 * BASE


def test_a_plateau_needs_evaluations():
    for setting in (CodeRef(path="mine:plateau"), plateau(), plateau(metric="auc")):
        with pytest.raises(ConfigError, match="give valid=, and leave evaluator out"):
            watching(setting, sgd(), None)
    with pytest.raises(ConfigError, match="no metric 'auc' to watch; available metrics: loss"):
        watching(plateau(metric="auc"), sgd(), "loss").evaluated({"loss": 1.0})


def test_a_function_that_makes_a_plateau_of_the_wrong_mode_is_refused():
    assert watching(CodeRef(path="mine:plateau"), sgd(), "logloss").watches
    with pytest.raises(ConfigError, match="mode='min', and 'auc'"):
        watching(CodeRef(path="mine:plateau"), sgd(), "auc")


def test_a_metric_is_for_schedulers_that_watch_one():
    with pytest.raises(ConfigError, match="metric= is for kind='torch'"):
        Schedule(kind="cosine", metric="auc")
    with pytest.raises(ConfigError, match="ExponentialLR watches no metric"):
        rates(Schedule(kind="torch", scheduler="torch:ExponentialLR", metric="auc"))


def test_code_that_gives_no_scheduler_is_refused():
    with pytest.raises(ConfigError, match="mine:wrong gave a int"):
        rates(CodeRef(path="mine:wrong"))


def test_an_argument_the_scheduler_does_not_take_is_named():
    with pytest.raises(ConfigError, match="no 'gama'; did you mean 'gamma'"):
        rates(Schedule(kind="torch", scheduler="torch:ExponentialLR", args={"gama": 0.9}))


def test_a_missing_argument_names_the_scheduler():
    with pytest.raises(ConfigError, match=r"torch:ExponentialLR.*missing.*gamma"):
        rates(Schedule(kind="torch", scheduler="torch:ExponentialLR"))


def test_warmup_does_not_go_with_a_torch_scheduler():
    with pytest.raises(ConfigError, match="warmup cannot be combined with kind='torch'"):
        rates(Schedule(kind="torch", scheduler="torch:ConstantLR", warmup=3))


RESUMED = [
    Schedule(kind="cosine", warmup=5),
    Schedule(kind="step", milestones=(1, 2), unit="epoch"),
    Schedule(kind="torch", scheduler="torch:MultiStepLR", args={"milestones": [3, 9, 12]}),
    Schedule(kind="torch", scheduler="torch:OneCycleLR", args={"max_lr": BASE}),
    Schedule(kind="torch", scheduler="torch:CosineAnnealingLR", args={"T_max": TOTAL}),
    CodeRef(path="mine:half"),
]


@pytest.mark.parametrize("setting", RESUMED, ids=str)
def test_a_schedule_goes_on_from_its_json_state(setting):
    optimizer = sgd()
    schedule = build(setting, optimizer)
    train(schedule, optimizer, 0, 7)
    saved, saved_optimizer = json.dumps(schedule.state_dict()), optimizer.state_dict()

    again = sgd()
    resumed = build(setting, again)
    again.load_state_dict(saved_optimizer)
    resumed.load_state_dict(json.loads(saved))
    assert train(resumed, again, 7, TOTAL) == pytest.approx(rates(setting)[7:])
