from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from flambeau.config import Binding
from flambeau.data.batch import Batch
from flambeau.data.binding import Binder, Shape
from flambeau.errors import DataError
from flambeau.strategies.group import Solo
from flambeau.training.evaluation import evaluate
from flambeau.training.losses import build_loss
from flambeau.training.metric_set import MetricSet

SHAPE = Shape(("x", "y"))
X = torch.tensor([[2.0], [-1.0], [0.5], [-0.5], [3.0]])
Y = torch.tensor([1.0, 0.0, 0.0, 1.0, 1.0])


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.9)
        self.modes: list[tuple[bool, bool]] = []

    def forward(self, x: Tensor) -> Tensor:
        self.modes.append((self.training, torch.is_inference_mode_enabled()))
        return self.drop(x).squeeze(1)


def batches(size: int) -> Iterator[Batch]:
    for start in range(0, len(X), size):
        rows = slice(start, start + size)
        yield Batch({"x": X[rows], "y": Y[rows]}, len(X[rows]))


def run(model: nn.Module, size: int, loss: Any = "bce", names: tuple[str, ...] = ("auc",)) -> Any:
    binder = Binder(Binding(label="y"), model.forward, SHAPE)
    function = build_loss(loss) if loss else None
    metrics = MetricSet(names, function, exact_rows=100)
    return evaluate(model, batches(size), binder, function, metrics, Solo())


def test_loss_and_metrics_do_not_depend_on_the_batches() -> None:
    whole, parts = run(Model(), 5), run(Model(), 2)
    expected = nn.functional.binary_cross_entropy_with_logits(X.squeeze(1), Y).item()
    assert whole.metrics["loss"] == pytest.approx(expected)
    assert parts.metrics == pytest.approx(whole.metrics)
    assert whole.rows == parts.rows == 5


def test_the_model_is_used_without_dropout_or_gradients() -> None:
    model = Model()
    run(model, 5)
    assert model.modes == [(False, True)]


@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_left_in_the_mode_it_was_in(training: bool) -> None:
    model = Model().train(training)
    run(model, 5)
    assert model.training is training


def test_the_mode_is_restored_also_after_an_error() -> None:
    model = Model()
    with pytest.raises(RuntimeError, match="broken"):
        run(model, 5, loss=_broken)
    assert model.training


def _broken(output: Tensor, batch: Batch) -> Tensor:
    raise RuntimeError("broken")


def test_without_a_loss_there_are_metrics_only() -> None:
    assert set(run(Model(), 5, loss=None, names=("auc",)).metrics) == {"auc"}


def test_no_rows_at_all_are_an_error() -> None:
    model = Model()
    binder = Binder(Binding(label="y"), model.forward, SHAPE)
    metrics = MetricSet((), None, exact_rows=100)
    with pytest.raises(DataError, match="validation data has no rows"):
        evaluate(model, [], binder, build_loss("bce"), metrics, Solo())
