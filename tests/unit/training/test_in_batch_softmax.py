import math

import pytest
import torch

from flambeau.data.batch import Batch
from flambeau.errors import ModelError
from flambeau.inference.outputs import prediction_columns
from flambeau.strategies.group import Solo
from flambeau.training.losses import build_loss
from flambeau.training.metric_set import MetricSet

LOGITS = torch.tensor([[2.0, 1.0, -math.inf], [0.0, 3.0, 1.0], [1.0, 2.0, 0.0]])


def loss(
    logits: torch.Tensor = LOGITS,
    label: torch.Tensor | None = None,
    weight: torch.Tensor | None = None,
) -> float:
    return build_loss("in_batch_softmax")(logits, Batch({}, len(logits)), label, weight).item()


def row_loss(row: int) -> float:
    exps = [math.exp(value) for value in LOGITS[row].tolist()]
    return -math.log(exps[row] / sum(exps))


def test_each_row_has_its_own_item_right() -> None:
    assert loss() == pytest.approx(sum(row_loss(row) for row in range(3)) / 3)


def test_rows_that_are_no_pairs_count_0_and_weights_multiply() -> None:
    label, weight = torch.tensor([1.0, 0.0, math.nan]), torch.tensor([0.5, 1.0, 1.0])
    assert loss(label=label) == pytest.approx(row_loss(0) / 3)
    assert loss(label=torch.tensor([1, 0, 1]), weight=weight) == pytest.approx(
        (0.5 * row_loss(0) + row_loss(2)) / 3
    )


def test_a_batch_of_one_row_has_no_loss() -> None:
    assert loss(torch.tensor([[4.0]])) == 0.0


def test_metrics_rank_the_items_of_the_batch() -> None:
    metrics = MetricSet(["recall@1", "recall@2"], build_loss("in_batch_softmax"), 100)
    metrics.update(LOGITS, None, None, None)
    metrics.update(torch.tensor([[1.0]]), None, None, None)
    metrics.update(torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([1, 0]), None, None)
    found = metrics.results(Solo())
    assert found == pytest.approx({"recall@1": 3 / 4, "recall@2": 3 / 4})


def test_a_prediction_is_the_score_of_the_rows_own_item() -> None:
    found = prediction_columns(LOGITS, "in_batch_softmax")
    assert found["prediction"].to_pylist() == [2.0, 3.0, 0.0]


def test_other_outputs_are_refused() -> None:
    with pytest.raises(ModelError, match=r"needs a model that gives logits of \[rows, rows\]"):
        loss(torch.zeros(3, 2))
    with pytest.raises(ModelError, match="one label for each row"):
        loss(label=torch.zeros(3, 2))
