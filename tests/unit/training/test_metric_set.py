from typing import Any

import pytest
import torch
from torch import Tensor, nn

from flambeau.errors import ConfigError, ModelError
from flambeau.strategies.group import Group, Solo
from flambeau.training.losses import build_loss
from flambeau.training.metric_set import MetricSet

OUTPUT = torch.tensor([2.0, -1.0, 0.5, -0.5, 3.0, -2.0])
LABEL = torch.tensor([1, 0, 0, 1, 1, 0])
NAMES = ("auc", "logloss", "accuracy")


class Recorded(Group):
    """A group that gathers what several workers have sent."""

    rank = 0

    def __init__(self, sent: list[bytes]) -> None:
        self.sent, self.size = sent, len(sent)

    def sum(self, tensor: Tensor) -> Tensor:
        return tensor

    def broadcast(self, tensor: Tensor) -> Tensor:
        return tensor

    def gather(self, data: bytes) -> list[bytes]:
        return self.sent


class Recorder(Recorded):
    """Keeps what one worker sends."""

    def gather(self, data: bytes) -> list[bytes]:
        self.sent.append(data)
        return [data]


def make(names: tuple[str, ...] = NAMES, loss: Any = "bce") -> MetricSet:
    return MetricSet(names, build_loss(loss), exact_rows=1000)


def together(parts: list[MetricSet]) -> list[dict[str, float]]:
    """The results on every worker."""
    recorder = Recorder([])
    for part in parts:
        part.results(recorder)
    return [part.results(Recorded(recorder.sent)) for part in parts]


def test_workers_with_parts_of_the_rows_get_the_values_of_all_rows() -> None:
    whole = make()
    whole.update(OUTPUT, LABEL, None, None)
    parts = [make(), make(), make()]
    for part, rows in zip(parts, (slice(0, 1), slice(1, 6), slice(6, 6)), strict=True):
        if rows.start < rows.stop:
            part.update(OUTPUT[rows], LABEL[rows], None, None)
    expected = whole.results(Solo())
    assert together(parts) == [pytest.approx(expected)] * 3
    assert set(expected) == set(NAMES)


def test_metrics_of_several_tasks_are_named_by_task() -> None:
    metrics = make(("auc",), {"click": "bce", "buy": "bce"})
    label = {"click": LABEL, "buy": 1 - LABEL}
    metrics.update({"click": OUTPUT, "buy": OUTPUT}, label, None, None)
    values = metrics.results(Solo())
    assert set(values) == {"click/auc", "buy/auc"}
    assert values["click/auc"] == pytest.approx(1 - values["buy/auc"])


def test_a_worker_without_rows_learns_the_tasks_from_the_others() -> None:
    loss = {"click": "bce", "buy": "bce"}
    busy, idle = make(("auc",), loss), make(("auc",), loss)
    label = {"click": LABEL, "buy": LABEL}
    busy.update((OUTPUT, -OUTPUT), label, None, None)
    values = together([busy, idle])
    assert values[0] == values[1]
    assert set(values[1]) == {"click/auc", "buy/auc"}


def test_a_task_with_a_slash_in_its_name_is_one_task() -> None:
    loss = {"shop/buy": "bce"}
    busy, idle = make(("auc",), loss), make(("auc",), loss)
    busy.update({"shop/buy": OUTPUT}, {"shop/buy": LABEL}, None, None)
    values = together([busy, idle])
    assert set(values[0]) == set(values[1]) == {"shop/buy/auc"}


def test_weights_count() -> None:
    metrics = make(("accuracy",))
    weight = torch.tensor([1.0, 1, 0, 0, 1, 1])
    metrics.update(OUTPUT, LABEL, weight, None)
    assert metrics.results(Solo()) == {"accuracy": 1.0}


def test_without_metrics_any_output_will_do() -> None:
    metrics = make(())
    metrics.update(object(), LABEL, None, None)
    assert metrics.results(Solo()) == {}


def test_an_output_that_is_no_tensor_is_explained() -> None:
    with pytest.raises(ModelError, match="it returned list"):
        make().update([1, 2], LABEL, None, None)


def test_an_unknown_metric_is_found_when_it_is_built() -> None:
    with pytest.raises(ConfigError, match="did you mean 'accuracy'"):
        make(("acuracy",))


def test_outputs_of_torchs_loss_of_probabilities_are_probabilities() -> None:
    named, module = make(loss="bce_prob"), make(loss=nn.BCELoss())
    for metrics in (named, module):
        metrics.update(OUTPUT.sigmoid(), LABEL, None, None)
    assert module.results(Solo()) == named.results(Solo()) != {}
