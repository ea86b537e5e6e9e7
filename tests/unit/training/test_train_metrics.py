"""Metrics of what was trained on."""

import pytest
import torch
from torch import nn

from flambeau.config import Binding, Evaluation, JobSettings
from flambeau.data.batch import Batch
from flambeau.data.binding import Binder, Shape
from flambeau.errors import ConfigError
from flambeau.strategies.group import Solo
from flambeau.training.losses import build_loss
from flambeau.training.metric_set import MetricSet
from flambeau.training.step import StandardStep
from flambeau.training.train_metrics import TrainMetrics

OUTPUT = torch.tensor([2.0, -1.0, 0.5, -0.5])
LABEL = torch.tensor([1.0, 0.0, 0.0, 1.0])


def watched() -> TrainMetrics:
    return TrainMetrics(("auc", "accuracy"), build_loss("bce"), 100)


def test_values_are_those_of_all_batches_together():
    metrics = watched()
    metrics.add(OUTPUT[:3], LABEL[:3], None, None, 0.5, 3)
    metrics.add(OUTPUT[3:].requires_grad_(), LABEL[3:], None, None, 0.1, 1)
    found = metrics.results(Solo())
    whole = MetricSet(("auc", "accuracy"), build_loss("bce"), 100)
    whole.update(OUTPUT.detach(), LABEL, None, None)
    assert found.pop("train/loss") == pytest.approx((3 * 0.5 + 0.1) / 4)
    assert found == {f"train/{name}": value for name, value in whole.results(Solo()).items()}


def test_each_result_begins_anew():
    metrics = watched()
    metrics.add(OUTPUT, LABEL, None, None, 0.5, 4)
    metrics.results(Solo())
    assert metrics.results(Solo()) == {}
    metrics.add(OUTPUT, 1 - LABEL, None, None, 2.0, 4)
    assert metrics.results(Solo())["train/loss"] == 2.0


def test_outputs_by_task_are_counted_by_task():
    metrics = TrainMetrics(("auc",), build_loss({"a": "bce"}), 100)
    metrics.add({"a": OUTPUT}, {"a": LABEL}, None, None, 0.5, 4)
    assert metrics.results(Solo()).keys() == {"train/loss", "train/a/auc"}


def test_a_step_counts_what_it_computed_before_the_update():
    class Strategy:
        skips_non_finite = False

        def backward(self, loss, last):
            loss.backward()

        def update(self):
            """Nothing is applied here."""

    model = nn.Linear(1, 1)
    columns = Shape(("input", "label"))
    binder = Binder(Binding(label="label"), model.forward, columns)
    metrics = TrainMetrics((), build_loss("mse"), 100)
    step = StandardStep(
        model, binder, build_loss("mse"), Strategy(), torch.enable_grad, watched=metrics
    )
    batch = Batch({"input": torch.ones(2, 1), "label": torch.tensor([0.0, 1.0])}, 2)
    assert metrics.results(Solo()) == {}
    loss = step(batch, 1.0, 0)
    assert metrics.results(Solo()) == {"train/loss": pytest.approx(loss)}


@pytest.mark.parametrize("other", [{"evaluator": True}, {"step": {"path": "a:b"}}])
def test_it_needs_workers_that_evaluate_and_our_step(other):
    data = {"kind": "files", "path": "a"}
    with pytest.raises(ConfigError, match=r"evaluation\.train needs workers that evaluate"):
        JobSettings.parse(
            {"model": {"path": "a:b"}, "train": data, "valid": data, "evaluation": {"train": True}}
            | other
        )
    assert not Evaluation().train
